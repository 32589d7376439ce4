"""The local CUDA hardware and compilers: GPUs (from nvidia-smi), nvcc, and NVRTC (from PyPI's cuda-bindings)."""

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

COMPILER_VARIABLE = "ANOLE_CUDA_COMPILER"
"""The environment variable that names a program to replace NVRTC."""

_QUERY = ("nvidia-smi", "--query-gpu=compute_cap,index,uuid,name", "--format=csv,noheader")
_GPU = re.compile(r"(\d+)\.(\d+), *(\d+), *([^,\s]+)(?:, *(.+))?$")
_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Gpu:
    """A GPU of this machine.

    Attributes:
        architecture: such as ``sm_90``.
        index: nvidia-smi's index, used in messages and lock names.
        uuid: the identifier that selects the GPU in CUDA, whose indices may differ.
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
    rows = filter(None, (_GPU.match(line.strip()) for line in _output_of(*_QUERY).splitlines()))
    gpus = tuple(Gpu(f"sm_{row[1]}{row[2]}", int(row[3]), row[4], row[5]) for row in rows)
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return gpus
    names = [name.strip() for name in allowed.split(",")]
    # CUDA also accepts a prefix of an identifier.
    prefixes = tuple(name for name in names if name.startswith("GPU-"))
    return tuple(gpu for gpu in gpus if str(gpu.index) in names or gpu.uuid.startswith(prefixes))


def find_nvcc() -> str | None:
    """Return the path of nvcc, or None."""
    default = Path("/usr/local/cuda/bin/nvcc")
    return shutil.which("nvcc") or (str(default) if default.is_file() else None)


def nvcc_version() -> str | None:
    """Return nvcc's version, or None if it cannot be run."""
    nvcc = find_nvcc()
    match = re.search(r"release [\d.]+, V([\d.]+)", _output_of(nvcc, "--version") if nvcc else "")
    return match[1] if match else None


def _output_of(*command: str) -> str:
    """Return a program's standard output; "" if it fails or cannot be started."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def nvrtc_version() -> str | None:
    """Return the version of the NVRTC that Python can load, or None."""
    version = _call_nvrtc("nvrtcVersion")
    return f"{version[0]}.{version[1]} (cuda-bindings {metadata.version('cuda-bindings')})" if version else None


@cache
def supported_architectures() -> tuple[str, ...]:
    """Return the architectures that NVRTC supports; none if it cannot be loaded."""
    results = _call_nvrtc("nvrtcGetSupportedArchs")
    return tuple(f"sm_{number}" for number in results[0]) if results else ()


def _call_nvrtc(function: str) -> Sequence[Any] | None:
    """Call one of NVRTC's functions and return its results, or None if it fails or cannot be loaded."""
    try:
        from cuda.bindings import nvrtc

        error, *results = getattr(nvrtc, function)()
    except (ImportError, RuntimeError):
        return None
    return results if error == nvrtc.nvrtcResult.NVRTC_SUCCESS else None


def check_architecture(arch: str) -> None:
    """Check, before anything is built, that the compiler in use supports an architecture.

    Raises:
        TargetError: NVRTC does not support it; recent versions have dropped old architectures.
    """
    allowed = supported_architectures()
    is_nvrtc = (
        os.environ.get("TVM_CUDA_COMPILE_MODE", "nvrtc").lower() == "nvrtc" and COMPILER_VARIABLE not in os.environ
    )
    if not allowed or arch in allowed or not is_nvrtc:
        return
    raise TargetError(
        f"cuda {arch}: NVRTC {nvrtc_version()} supports only {', '.join(allowed)}, so nothing can be built; for Volta, "
        f"put the nvcc of CUDA 12, the last version that supports it, on PATH and set TVM_CUDA_COMPILE_MODE=nvcc"
    )


def compiler_environment() -> dict[str, str]:
    """Return the environment variables through which TVM's NVRTC call finds CUDA's headers.

    TVM would use the parent of nvcc's folder. That requires nvcc, and fails if nvcc is a wrapper script.
    """
    nvcc = find_nvcc()
    nvcc_roots = [Path(nvcc).resolve().parents[1]] if nvcc else []
    for root in (*nvcc_roots, Path("/usr/local/cuda"), *_package_roots()):
        if (root / "include" / "cuda_runtime.h").is_file():
            cccl = root / "include" / "cccl"
            extra = {"TVM_CUDA_NVRTC_EXTRA_OPTS": f"-I{cccl}"} if cccl.is_dir() else {}
            return {"CUDA_PATH": str(root), **extra}
    return {}


def _package_roots() -> list[Path]:
    """Return the header folders of PyPI's CUDA packages."""
    package = find_spec("nvidia")
    folders = [Path(location) for location in package.submodule_search_locations or ()] if package else []
    return [path for folder in folders for path in sorted(folder.glob("cu[0-9]*"), reverse=True)]


def compilers() -> str:
    """Return a readable list of the installed compilers."""
    nvcc, nvrtc = nvcc_version(), nvrtc_version()
    installed = [f"{name} {version}" for name, version in (("NVRTC", nvrtc), ("nvcc", nvcc)) if version]
    return ", ".join(installed) or "MISSING: neither NVRTC (cuda-bindings) nor nvcc, nothing can be built for CUDA"
