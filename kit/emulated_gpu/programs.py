"""Functions for processes with the emulated GPU: run candidates, functions and networks, compiled from CUDA C++."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax

from anole.record import Config
from anole.targets.shared.kernel import define
from anole.targets.shared.reference import Example
from anole.task import Workload
from anole_cuda.device.builder import compile_kernel, cuda_target, prepare_to_compile
from anole_cuda.device.machine import compiler_environment
from anole_cuda.target import CudaTarget
from kit.emulated_gpu.compiler import compile_kernels

Arrays = Sequence[NDArray[Any]]


def replace_nth(old: str, new: str, index: int, source: str) -> str:
    """Replace one occurrence of a string in a source; the index counts from 0.

    Raises:
        ValueError: the string has fewer occurrences.
    """
    parts = source.split(old)
    if len(parts) <= index + 1:
        raise ValueError(f"{old!r} occurs only {len(parts) - 1} times")
    return new.join([old.join(parts[: index + 1]), old.join(parts[index + 1 :])])


def run_candidate(
    description: Mapping[str, Any], workload: Workload, config: Config, edit: Callable[[str], str] = str
) -> float:
    """Return the relative error of a candidate against the reference, optionally after an edit of its source."""
    template = CudaTarget(description).template(workload)
    func = template.schedule(define(template, workload, config), workload, config)
    example = Example.draw(workload)
    packed = template.pack_weight(workload, config, example.weight)
    with compile_with_emulator(edit):
        kernel = compile_kernel(func, description)
    out = run(kernel["main"], [*example.arguments(packed), example.unwritten()])[-1]
    return example.relative_error(out)


def run_function(func: str, description: Mapping[str, Any], arguments: Arrays) -> Arrays:
    """Run a scheduled function, given as TVM's JSON, and return its arguments after the run."""
    with compile_with_emulator():
        return run(compile_kernel(tvm.ir.load_json(func), description)["main"], arguments)


def run_network(module: str, description: Mapping[str, Any], inputs: Arrays) -> Arrays:
    """Run a network, given as TVM's JSON, entirely on the GPU, and return its results."""
    options = dict(CudaTarget(description).compiler_options)
    with compile_with_emulator(), cuda_target(description) as target, tvm.transform.PassContext(config=options):
        executable = tvm.compile(tvm.ir.load_json(module), target)
    with TemporaryDirectory(prefix="anole-") as folder:
        path = Path(folder) / "network.so"
        executable.export_library(str(path))
        main = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cuda())["main"]
    result = main(*(tvm.runtime.tensor(array, tvm.cuda()) for array in inputs))
    return [output.numpy() for output in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]


def run(kernel: Callable[..., Any], arguments: Arrays) -> Arrays:
    """Run a kernel and return its arguments after the run."""
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(array), tvm.cuda()) for array in arguments]
    kernel(*tensors)
    return [tensor.numpy() for tensor in tensors]


@contextmanager
def compile_with_emulator(edit: Callable[[str], str] = str) -> Iterator[None]:
    """Make TVM compile CUDA C++ for the emulated GPU within the block, after an edit of the source."""
    prepare_to_compile()
    name = "tvm_callback_cuda_compile"
    original = tvm_ffi.get_global_func(name)
    tvm_ffi.register_global_func(name, lambda code: compile_source(edit(code)), override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(name, original, override=True)


def compile_source(source: str) -> bytearray:
    """Compile CUDA C++ to a binary for the emulated GPU."""
    include = Path(compiler_environment()["CUDA_PATH"]) / "include"
    with TemporaryDirectory(prefix="anole-") as folder:
        library = Path(folder) / "kernels.so"
        compile_kernels(source, library, include)
        return bytearray(library.read_bytes())
