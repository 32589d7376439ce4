"""Finds the installed CUDA compilers: nvcc, and NVRTC through PyPI's cuda-bindings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from anole.errors import TargetError

OWN_COMPILER = "ANOLE_CUDA_COMPILER"
"""The environment variable that names a program which compiles in the place of NVRTC."""

_TIMEOUT_S = 20.0


def find_nvcc() -> str | None:
    """Returns the path of nvcc, or None."""
    usual = Path("/usr/local/cuda/bin/nvcc")
    return shutil.which("nvcc") or (str(usual) if usual.is_file() else None)


def nvcc_version() -> str | None:
    """Returns nvcc's version, or None if none runs."""
    nvcc = find_nvcc()
    if nvcc is None:
        return None
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"release [\d.]+, V([\d.]+)", said.stdout)
    return found[1] if found else None


def nvrtc_version() -> str | None:
    """Returns the version of the NVRTC that Python can load, or None."""
    found = _ask_nvrtc("nvrtcVersion")
    return f"{found[0]}.{found[1]} (cuda-bindings {metadata.version('cuda-bindings')})" if found else None


@cache
def compiled_architectures() -> tuple[str, ...]:
    """Returns the architectures that NVRTC compiles for; nothing if it cannot be loaded."""
    found = _ask_nvrtc("nvrtcGetSupportedArchs")
    return tuple(f"sm_{number}" for number in found[0]) if found else ()


def _ask_nvrtc(function: str) -> Sequence[Any] | None:
    """Returns the results of one of NVRTC's functions, or None if it fails or cannot be loaded."""
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
    """Returns the environment variables through which TVM's NVRTC call finds CUDA's headers.

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
    """Returns the header folders of PyPI's CUDA packages."""
    package = find_spec("nvidia")
    folders = [Path(place) for place in package.submodule_search_locations or ()] if package else []
    return [path for folder in folders for path in sorted(folder.glob("cu[0-9]*"), reverse=True)]


def compilers() -> str:
    """Returns, for people, which compilers are installed and which of them builds."""
    nvcc, nvrtc = nvcc_version(), nvrtc_version()
    found = [f"{name} {version}" for name, version in (("NVRTC", nvrtc), ("nvcc", nvcc)) if version]
    return ", ".join(found) or "MISSING: neither NVRTC (cuda-bindings) nor nvcc, nothing can be built for CUDA"
