"""What this machine has for CUDA: GPUs, as nvidia-smi reports them; nvcc, and NVRTC through PyPI's cuda-bindings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from anole.errors import TargetError

OWN_COMPILER = "ANOLE_CUDA_COMPILER"
"""The environment variable that names a program which compiles in the place of NVRTC."""

_QUERY = ("nvidia-smi", "--query-gpu=compute_cap,index,uuid,name", "--format=csv,noheader")
_GPU = re.compile(r"(\d+)\.(\d+), *(\d+), *([^,\s]+)(?:, *(.+))?$")
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine.

    Attributes:
        architecture: such as ``sm_90``.
        index: nvidia-smi's index, by which people and locks name the GPU.
        uuid: the identifier that selects the GPU in CUDA, which may count in another order.
        name: such as ``NVIDIA H200``; None if nvidia-smi reports none.
    """

    architecture: str
    index: int
    uuid: str
    name: str | None = None

    def __str__(self) -> str:
        return self.architecture if self.name is None else f"{self.name} ({self.architecture})"


def present_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that this process may use, restricted by ``CUDA_VISIBLE_DEVICES`` if it is set."""
    rows = filter(None, (_GPU.match(line.strip()) for line in _said(*_QUERY).splitlines()))
    gpus = tuple(Gpu(f"sm_{row[1]}{row[2]}", int(row[3]), row[4], row[5]) for row in rows)
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return gpus
    names = [name.strip() for name in allowed.split(",")]
    # CUDA also takes the beginning of an identifier.
    beginnings = tuple(name for name in names if name.startswith("GPU-"))
    return tuple(gpu for gpu in gpus if str(gpu.index) in names or gpu.uuid.startswith(beginnings))


def find_nvcc() -> str | None:
    """Return the path of nvcc, or None."""
    usual = Path("/usr/local/cuda/bin/nvcc")
    return shutil.which("nvcc") or (str(usual) if usual.is_file() else None)


def nvcc_version() -> str | None:
    """Return nvcc's version, or None if none runs."""
    nvcc = find_nvcc()
    found = re.search(r"release [\d.]+, V([\d.]+)", _said(nvcc, "--version") if nvcc else "")
    return found[1] if found else None


def _said(*command: str) -> str:
    """Return what a program says; nothing if it fails or cannot be started."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def nvrtc_version() -> str | None:
    """Return the version of the NVRTC that Python can load, or None."""
    found = _ask_nvrtc("nvrtcVersion")
    return f"{found[0]}.{found[1]} (cuda-bindings {metadata.version('cuda-bindings')})" if found else None


@cache
def compiled_architectures() -> tuple[str, ...]:
    """Return the architectures that NVRTC compiles for; nothing if it cannot be loaded."""
    found = _ask_nvrtc("nvrtcGetSupportedArchs")
    return tuple(f"sm_{number}" for number in found[0]) if found else ()


def _ask_nvrtc(function: str) -> Sequence[Any] | None:
    """Return the results of one of NVRTC's functions, or None if it fails or cannot be loaded."""
    try:
        from cuda.bindings import nvrtc

        error, *results = getattr(nvrtc, function)()
    except (ImportError, RuntimeError):
        return None
    return results if error == nvrtc.nvrtcResult.NVRTC_SUCCESS else None


def check_architecture(arch: str) -> None:
    """Checks that the compiler which is used knows an architecture, before anything is built in vain.

    Raises:
        TargetError: NVRTC does not; it has given up old ones.
    """
    known = compiled_architectures()
    is_nvrtc = os.environ.get("TVM_CUDA_COMPILE_MODE", "nvrtc").lower() == "nvrtc" and OWN_COMPILER not in os.environ
    if not known or arch in known or not is_nvrtc:
        return
    raise TargetError(
        f"cuda {arch}: NVRTC {nvrtc_version()} compiles for {', '.join(known)} only, so nothing can be built; CUDA 12 "
        f"was the last to compile for Volta (with its nvcc on PATH and TVM_CUDA_COMPILE_MODE=nvcc, TVM calls that)"
    )


def compiler_environment() -> dict[str, str]:
    """Return the environment variables through which TVM's NVRTC call finds CUDA's headers.

    By itself, TVM takes the folder above nvcc's, which is wrong for a wrapper script and requires nvcc.
    """
    nvcc = find_nvcc()
    usual = [Path(nvcc).resolve().parents[1]] if nvcc else []
    for root in (*usual, Path("/usr/local/cuda"), *_packaged()):
        if (root / "include" / "cuda_runtime.h").is_file():
            cccl = root / "include" / "cccl"
            extra = {"TVM_CUDA_NVRTC_EXTRA_OPTS": f"-I{cccl}"} if cccl.is_dir() else {}
            return {"CUDA_PATH": str(root), **extra}
    return {}


def _packaged() -> list[Path]:
    """Return the header folders of PyPI's CUDA packages."""
    package = find_spec("nvidia")
    folders = [Path(place) for place in package.submodule_search_locations or ()] if package else []
    return [path for folder in folders for path in sorted(folder.glob("cu[0-9]*"), reverse=True)]


def compilers() -> str:
    """Return, for people, which compilers are installed and which of them builds."""
    nvcc, nvrtc = nvcc_version(), nvrtc_version()
    found = [f"{name} {version}" for name, version in (("NVRTC", nvrtc), ("nvcc", nvcc)) if version]
    return ", ".join(found) or "MISSING: neither NVRTC (cuda-bindings) nor nvcc, nothing can be built for CUDA"
