"""The compiler of the emulated GPU: from TVM's CUDA C++ to a shared library of kernels with checked accesses.

    python kit/emulated_gpu/compiler.py kernels.cu kernels.so /usr/local/cuda/include

It is a separate program, because `anole_cuda.device.builder` runs it instead of NVRTC, from any folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from anole.errors import TargetError
from anole_cuda.device.architecture import BlockLimits

DEVICE = Path(__file__).parent / "device"

SHARED_BYTES = BlockLimits().shared_bytes_per_block
"""Limit on the static shared memory of a thread block; the CUDA assembler enforces it, too."""

_SHARED = re.compile(r"__shared__ (alignas\(\d+\)) (\w+) (\w+)\[(\d+)\];")
_DYNAMIC = re.compile(r"extern __shared__ (?:__align__\(\d+\)|alignas\(\d+\))? ?(\w+) (\w+)\[\];")
_VECTOR = re.compile(r"\*\((\w+[234])\*\)\(")
_KERNEL = re.compile(r'^extern "C" __global__ .*?(\w+)\((?:[^()]|\([^()]*\))*\) \{', re.MULTILINE)
_ACCESS_CHECKS = ("-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0")


def translate(source: str) -> str:
    """Translate CUDA C++ to C++ for `device/kernel.h`: register shared arrays, and add an entry point per kernel."""
    code = _SHARED.sub(r'\1 static \2 \3[\4]; emulated_shared("\3", \3, sizeof \3);', source)
    code = _DYNAMIC.sub(r"\1* \2 = static_cast<\1*>(emulated_dynamic_shared());", code)
    # The compiler may split a vector access, which would hide its misalignment.
    code = _VECTOR.sub(r"*emulated_aligned<\1>(", code)
    kernels = dict.fromkeys(_KERNEL.findall(source))
    return '#include "kernel.h"\n' + code + "".join(f"\nEMULATED_KERNEL({name})" for name in kernels) + "\n"


def compile_kernels(source: str, library: Path, include: Path) -> None:
    """Compile CUDA C++ to a shared library.

    Raises:
        TargetError: a kernel has too much shared memory, or does not compile.
    """
    for kernel in source.split('extern "C" __global__')[1:]:
        if (shared_bytes := _shared_bytes(kernel)) > SHARED_BYTES:
            raise TargetError(f"a kernel has {shared_bytes} bytes of shared memory; at most {SHARED_BYTES}")
    with TemporaryDirectory(prefix="anole-") as folder:
        (Path(folder) / "kernels.cpp").write_text(translate(source), encoding="utf-8")
        flags = ("-std=c++17", "-O1", "-fPIC", "-w", f"-I{DEVICE}", f"-I{include}", *_ACCESS_CHECKS)
        _run(["g++", *flags, "-c", "kernels.cpp", "-o", "kernels.o"], folder)
        _run(["g++", "-shared", "kernels.o", "-o", str(library.absolute())], folder)


_BYTES = {"float": 4, "int": 4, "uint": 4, "double": 8, "int64_t": 8, "uint64_t": 8, "half": 2, "short": 2}


def _shared_bytes(kernel: str) -> int:
    """Return the static shared memory of a kernel, with each array aligned to 64 bytes."""
    sizes = [_BYTES.get(kind, 1) * int(length) for _, kind, _, length in _SHARED.findall(kernel)]
    return sum(-(-size // 64) * 64 for size in sizes[:-1]) + sum(sizes[-1:])


def _run(command: list[str], folder: str) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if result.returncode:
        raise TargetError(result.stderr.strip()[-4000:])


def main() -> None:
    """Compile the first argument to the second; the third is the folder of the CUDA headers."""
    source, library, include = map(Path, sys.argv[1:])
    try:
        compile_kernels(source.read_text(encoding="utf-8"), library, include)
    except TargetError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
