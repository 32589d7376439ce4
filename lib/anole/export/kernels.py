"""Compilation of a build's kernels for several instruction-set levels, with the build's configs.

The memory that kernels allocate at run time is measured, and reserved in the arena.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tvm
from tvm import ir, tirx
from tvm.ir.instrument import pass_instrument

from anole.compiler.build import match_network
from anole.compiler.device import lower_network
from anole.compiler.recorded import manifest_of_build, recorded_receipts
from anole.documents.build import Build
from anole.errors import ExportError, cause
from anole.export.levels import Level
from anole.export.memory import align
from anole.export.sequence import KernelSequence, check_kernels, lower_calls, read_sequence
from anole.ir.nodes import collect, with_values
from anole.ir.symbols import computed_extents, largest, range_of, with_extents
from anole.targets import get_device
from anole.targets.base import Device

_ALLOCATE_FUNCTION = "TVMBackendAllocWorkspace"
_LOWERING_PASS = "tirx.LowerTVMBuiltin"

_MAX_SUBSTITUTIONS = 16
"""Max number of times that variables in a size are replaced by their values."""


@dataclass(frozen=True)
class Lowered:
    """A network's sequence of kernels, and their code before compilation for a level."""

    kernels: KernelSequence
    functions: tvm.IRModule


def lower_build(build: Build, target: Device) -> Lowered:
    """Lower the network of a build, with the configs that the build was compiled with.

    Raises:
        ExtractError: the network cannot be loaded.
        BuildError: the network has changed since it was built.
        ExportError: the network cannot be lowered or exported to C.
    """
    network = match_network(build.model_spec, manifest_of_build(build), recorded_receipts(build), target)
    try:
        lowered, _ = lower_network(network, target)
        module = lower_calls(lowered, target.compiler_target())
    except Exception as error:
        raise ExportError(f"build {build.name}: TVM cannot lower it: {cause(error)}") from error
    kernels = read_sequence(module, len(build.outputs))
    check_kernels(module, kernels.kernels)
    functions = {name: module[name].with_attr("global_symbol", name) for name in kernels.kernels}
    return Lowered(kernels, tvm.IRModule({tvm.ir.GlobalVar(name): functions[name] for name in functions}))


def compile_level(lowered: Lowered, target: Device, level: Level, path: Path, workspaces: Workspaces) -> None:
    """Write the object file with the kernels of one level, if there are any, and count the memory that they allocate.

    The kernels do not check their arguments, since only the library calls them. Raises ExportError if TVM fails.
    """
    if not lowered.kernels.kernels:
        return
    options: dict[str, Any] = {**target.compiler_options, "tirx.disable_assert": True}
    compiler_target = get_device(level.description).compiler_target()
    try:
        with tvm.transform.PassContext(config=options, instruments=[workspaces]):
            library = tvm.tirx.build(lowered.functions, target=compiler_target, pipeline=target.compiler_pipeline())
    except Exception as error:
        raise ExportError(f"TVM cannot compile the kernels for {level.name}: {cause(error)}") from error
    library.write_to_file(str(path), "o")


@pass_instrument
class Workspaces:
    """A pass instrument that measures the memory that kernels allocate.

    Attributes:
        serial_bytes: max bytes that one kernel allocates outside its parallel loops.
        chunk_bytes: max bytes that one chunk of a parallel loop allocates.
    """

    serial_bytes = 0
    chunk_bytes = 0

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        """Count the allocations after the pass that inserts the calls; TVM calls this after every pass."""
        if info.name != _LOWERING_PASS:
            return
        for _, function in module.functions_items():
            if isinstance(function, tirx.PrimFunc):
                body, count_bytes = function.body, partial(_allocated_bytes, _SizeEvaluator(function))
                loops = [loop for loop in collect(body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL]
                inner_bytes = [count_bytes(loop.body) for loop in loops]
                self.chunk_bytes = max(self.chunk_bytes, *inner_bytes, 0)
                self.serial_bytes = max(self.serial_bytes, count_bytes(body) - sum(inner_bytes))


class _SizeEvaluator:
    """A function that evaluates expressions of a lowered function at the largest sizes."""

    def __init__(self, function: tirx.PrimFunc) -> None:
        self._extents = computed_extents(function)
        # Variables known by name are read from a tensor's shape.
        self._bound = {
            binding.var: binding.value
            for binding in collect(function.body, tirx.Bind)
            if range_of(binding.var) is None and str(binding.var.name) not in self._extents
        }

    def __call__(self, expression: Any) -> int:
        for _ in range(_MAX_SUBSTITUTIONS):
            size = largest(with_extents(expression, self._extents))
            if size is not None:
                return size
            expression = with_values(expression, self._bound)
        raise ExportError(f"a kernel allocates {expression} bytes, which no range bounds; it cannot be exported to C")


def _allocated_bytes(sizes: _SizeEvaluator, root: Any) -> int:
    """Return the total bytes of all allocations in a statement, an upper bound of the memory in use."""
    calls = [call for call in collect(root, ir.Call) if _ALLOCATE_FUNCTION in getattr(call.op, "name", "")]
    return sum(align(sizes(call.args[2])) for call in calls)
