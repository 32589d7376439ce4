"""The builder of CUDA candidates: their source, and shared libraries of kernels and the host code that launches them.

TVM's CUDA runtime is loaded even without a driver: without the runtime, TVM would leave kernels as source in libraries,
which no GPU runs. The runtime needs the driver's library, which exists only on machines with a GPU, but calls nothing
in it until a kernel is loaded. Any library with that name therefore suffices.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx

from anole.errors import MachineError, TargetError
from anole.record import Config
from anole.targets.base import Template
from anole.targets.shared.kernel import define, link
from anole.task import Workload
from anole_cuda.device.architecture import BlockLimits
from anole_cuda.device.machine import COMPILER_VARIABLE, check_architecture, compiler_environment

_COMPILER = "tvm_callback_cuda_compile"
_DRIVER = "libcuda.so.1"
_LOAD_MODE = os.RTLD_LAZY | os.RTLD_GLOBAL


def cuda_target(description: Mapping[str, Any]) -> tvm.target.Target:
    """Return TVM's target; its host is the compiling machine's CPU."""
    limits = BlockLimits(**description["limits"])
    cuda = {
        "kind": "cuda",
        "arch": description["arch"],
        "max_threads_per_block": limits.threads_per_block,
        "max_shared_memory_per_block": limits.shared_bytes_per_block,
        "registers_per_block": limits.registers_per_block,
        "thread_warp_size": limits.warp_size,
    }
    return tvm.target.Target(cuda, host="llvm")


def compile_kernel(func: tirx.PrimFunc, description: Mapping[str, Any]) -> Any:
    """Compile a scheduled function for the target and its host."""
    prepare_to_compile()
    # In the target's scope, the CUDA compiler gets the architecture from it; otherwise it would query a GPU.
    with cuda_target(description) as target:
        return tvm.compile(tvm.IRModule({"main": func}), target)


def source(func: tirx.PrimFunc, description: Mapping[str, Any]) -> str:
    """Return the CUDA C++ source that TVM generates for a scheduled function."""
    with skip_compilation():
        return str(compile_kernel(func, description).mod.imports[0].inspect_source())


def build(
    template: Template, workload: Workload, config: Config, description: Mapping[str, Any], artifact: Path
) -> None:
    """Build one candidate into a shared library."""
    check_architecture(description["arch"])
    func = template.schedule(define(template, workload, config), workload, config)
    compile_kernel(func, description).export_library(str(artifact), fcompile=link)


@cache
def prepare_to_compile() -> None:
    """Enable TVM to compile CUDA C++ to binaries in this process.

    The environment variable ``ANOLE_CUDA_COMPILER`` names a program that replaces NVRTC. Its arguments are the paths of
    the source and of the binary.

    Raises:
        TargetError: TVM's CUDA runtime cannot be loaded.
        MachineError: there is no linker.
    """
    for name, value in compiler_environment().items():
        os.environ.setdefault(name, value)
    if compiler := os.environ.get(COMPILER_VARIABLE):
        tvm_ffi.register_global_func(_COMPILER, partial(_compile, compiler), override=True)
    if tvm_ffi.get_global_func("ffi.Module.create.cuda", allow_missing=True) is not None:
        return
    try:
        _load_driver()
        ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"), mode=_LOAD_MODE)
    except (OSError, subprocess.SubprocessError) as error:
        raise TargetError(f"TVM's CUDA runtime cannot be loaded, so nothing can be built for CUDA: {error}") from error


@contextmanager
def skip_compilation() -> Iterator[None]:
    """Keep TVM from compiling the CUDA C++ that it generates, since compiling takes most of the time."""
    compiler = tvm_ffi.get_global_func(_COMPILER)
    tvm_ffi.register_global_func(_COMPILER, lambda code: bytearray(1), override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(_COMPILER, compiler, override=True)


def _compile(compiler: str, code: str) -> bytearray:
    """Compile CUDA C++ with a program, and return the binary."""
    with TemporaryDirectory(prefix="anole-") as folder:
        source, binary = Path(folder) / "kernels.cu", Path(folder) / "kernels.bin"
        source.write_text(code, encoding="utf-8")
        result = subprocess.run([compiler, str(source), str(binary)], capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"{compiler} cannot compile the source: {result.stderr.strip()[-2000:]}")
        return bytearray(binary.read_bytes())


def _load_driver() -> None:
    """Load the driver's library, or a dummy library with its name."""
    try:
        ctypes.CDLL(_DRIVER, mode=_LOAD_MODE)
        return
    except OSError:
        linker = shutil.which("ld")
    if linker is None:
        raise MachineError("found no `ld` on PATH; a linker is required to build anything: install binutils")
    one = te.placeholder((1,), name="one")
    func = te.create_prim_func([one, te.compute((1,), lambda i: one[i], name="same")])
    with TemporaryDirectory() as folder:
        object_path, path = Path(folder) / "any.o", Path(folder) / _DRIVER
        tvm.compile(tvm.IRModule({"main": func}), tvm.target.Target("llvm")).mod.write_to_file(str(object_path))
        command = [linker, "-shared", "-soname", _DRIVER, "-o", str(path), str(object_path)]
        subprocess.run(command, check=True, capture_output=True)
        ctypes.CDLL(str(path), mode=_LOAD_MODE)
