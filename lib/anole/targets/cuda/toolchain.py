"""The CUDA compilers that are there: nvcc, and NVRTC through PyPI's cuda-bindings."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

_TIMEOUT_S = 20.0


def find_nvcc() -> str | None:
    """Returns where nvcc is, or None."""
    usual = Path("/usr/local/cuda/bin/nvcc")
    return shutil.which("nvcc") or (str(usual) if usual.is_file() else None)


def nvcc_version() -> str | None:
    """Returns nvcc's version, or None without one that runs."""
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
    """Returns the version of NVRTC that Python can load, or None without one."""
    try:
        from cuda.bindings import nvrtc

        error, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):
        return None
    bindings = metadata.version("cuda-bindings")
    return f"{major}.{minor} (cuda-bindings {bindings})" if error == nvrtc.nvrtcResult.NVRTC_SUCCESS else None


def compilers() -> str:
    """Returns, for people, which compilers there are and which of them builds."""
    nvcc, nvrtc = nvcc_version(), nvrtc_version()
    found = [f"{name} {version}" for name, version in (("NVRTC", nvrtc), ("nvcc", nvcc)) if version]
    return ", ".join(found) or "MISSING: neither NVRTC (cuda-bindings) nor nvcc, nothing can be built for CUDA"
