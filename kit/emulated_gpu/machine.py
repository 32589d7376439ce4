"""The build of the emulated GPU, and the environment variables of processes that use it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from anole.errors import MachineError
from anole_cuda.device.machine import compiler_environment
from kit.emulated_gpu import compiler
from kit.emulated_gpu.compiler import DEVICE

MODEL = "Emulated GPU"
"""The model name of the GPU."""

_CUDA, _RUNTIME = "libcuda.so.1", "libcudart.so.13"


def why_unavailable() -> str | None:
    """Return why no GPU can be emulated on this machine, or None if one can."""
    for tool in ("g++", "nm"):
        if shutil.which(tool) is None:
            return f"found no {tool}, which builds the emulated GPU"
    return None if "CUDA_PATH" in compiler_environment() else "found no headers of CUDA"


def build_environment(arch: str = "sm_90") -> dict[str, str]:
    """Build the emulated GPU if necessary, and return the environment variables of programs that use it.

    Raises:
        MachineError: no GPU can be emulated on this machine.
    """
    if (reason := why_unavailable()) is not None:
        raise MachineError(reason)
    folder = _ensure_built()
    # A preloaded library replaces libraries with the same name and any path. LD_PRELOAD has only the names, since it
    # is split at spaces.
    preloaded = f"{_CUDA}:{_RUNTIME}"
    added = {"PATH": str(folder / "bin"), "LD_PRELOAD": preloaded, "LD_LIBRARY_PATH": str(folder)}
    joined = {name: ":".join(filter(None, (value, os.environ.get(name)))) for name, value in added.items()}
    return {
        **os.environ,
        **joined,
        "ANOLE_CUDA_COMPILER": str(folder / "bin" / "compile-emulated"),
        "ANOLE_EMULATED_ARCH": arch,
    }


def _ensure_built() -> Path:
    """Return the folder of the emulated GPU, after building it unless it is cached."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / "anole" / f"emulated-gpu-{_key()}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as temporary:
        _build(Path(temporary))
        Path(temporary).chmod(0o755)
        try:
            os.rename(temporary, folder)
        except OSError:
            if not folder.exists():  # another process may have built it in the meantime
                raise
    return folder


def _key() -> str:
    """Return a short hash of everything that the build depends on."""
    texts = [path.read_bytes() for path in sorted(DEVICE.rglob("*")) if path.is_file()]
    paths = (sys.executable, str(DEVICE), compiler_environment()["CUDA_PATH"])
    texts += [Path(__file__).read_bytes(), *(path.encode() for path in paths)]
    return sha256(b"\0".join(texts)).hexdigest()[:16]


def _build(folder: Path) -> None:
    include = Path(compiler_environment()["CUDA_PATH"]) / "include"
    flags = ("-std=c++17", "-O2", "-fPIC", "-shared", f"-I{DEVICE}", f"-I{include}", "-U_FORTIFY_SOURCE")
    sources = [str(DEVICE / f"{name}.cpp") for name in ("access", "driver", "grid")]
    _run(["g++", *flags, *sources, f"-Wl,-soname,{_CUDA}", "-o", str(folder / _CUDA)])
    (folder / "others.c").write_text(_other_functions(include.parent))
    (folder / "versions").write_text(f"{_RUNTIME} {{ global: *; }};\n")
    soname_flags = (f"-Wl,-soname,{_RUNTIME}", f"-Wl,--version-script={folder / 'versions'}", "-Wl,-rpath,$ORIGIN")
    parts = (str(DEVICE / "runtime.cpp"), "-x", "c++", str(folder / "others.c"), "-x", "none", str(folder / _CUDA))
    _run(["g++", *flags, *parts, *soname_flags, "-o", str(folder / _RUNTIME)])
    (folder / "bin").mkdir()
    compile_emulated = shlex.join([sys.executable, compiler.__file__])
    _write_script(folder / "bin" / "compile-emulated", f'exec {compile_emulated} "$1" "$2" {shlex.quote(str(include))}')
    query = 'version=${ANOLE_EMULATED_ARCH#sm_}; echo "${version%?}.${version#${version%?}}, 0, GPU-emulated, ' + MODEL
    _write_script(folder / "bin" / "nvidia-smi", f'{query}"')


def _other_functions(toolkit: Path) -> str:
    """Return C code for the runtime functions that other libraries, such as torch's, import, but TVM does not call.

    They report that there is no device.
    """
    runtime = next((path for name in ("lib", "lib64") if (path := toolkit / name / _RUNTIME).exists()), None)
    if runtime is None:
        return ""
    runtime_source = (DEVICE / "runtime.cpp").read_text(encoding="utf-8")
    symbols = _run(["nm", "-D", "--defined-only", str(runtime)]).split()
    names = sorted({name.partition("@")[0] for name in symbols if name.startswith(("cuda", "__cuda"))})
    no_device = "{ return 100; }"
    return "\n".join(f'extern "C" int {name}() {no_device}' for name in names if f" {name}(" not in runtime_source)


def _write_script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _run(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise MachineError(f"cannot build the emulated GPU: {result.stderr.strip()[-2000:]}")
    return result.stdout
