"""Compiles networks for a device with TVM and the best known configs, and describes their kernels and memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import tvm
from tvm import ir, relax, tirx
from tvm.ir.instrument import pass_instrument

from anole.compile.folder import write_library
from anole.compile.lower import Choice, PackedWeights, lower
from anole.compile.network_compiler import Compiled, MatchedNetwork
from anole.compile.passes.concat import WRITTEN_BYTES
from anole.compile.passes.small_sizes import SMALL_WEIGHTS, with_small_sizes
from anole.documents.build import BuiltKernel
from anole.errors import BuildError, cause
from anole.extract.graph import Layer, find_layers
from anole.ir.kernel_calls import anchored, calls_of, size_bytes
from anole.ir.symbols import symbol_names
from anole.targets.base import Device, DynamicShapeDevice
from anole.task import Workload, weight_scheme

_FEWER_WEIGHTS = 0.75
"""Weights packed for small sizes are stored beside the others if they are at most this share of the others' number."""


def compile_for_device(network: MatchedNetwork, target: Device, folder: Path) -> Compiled:
    """Write the compiled network as a shared library; see `NetworkCompiler`."""
    memory = MemoryPlan()
    try:
        lowered, failures = lower_network(network, target)
        options = tvm.transform.PassContext(config=dict(target.compiler_options), instruments=[memory])
        with target.compiler_target() as compiler_target, options:
            executable = tvm.compile(lowered, compiler_target, tir_pipeline=target.compiler_pipeline())
    except Exception as error:
        raise BuildError(f"model {network.model.name}: TVM cannot compile it: {cause(error)}") from error
    with TemporaryDirectory(prefix="anole-") as objects:
        write_library(folder / "model.so", executable, target.runtime_objects(Path(objects)))
    built = [
        match.unscheduled_for(f"its template could not schedule it in this network: {failures[match.task.workload]}")
        if match.task.workload in failures
        else match
        for match in network.matches
    ]
    task_keys = {match.task.workload: match.task.key for match in network.matches}
    kernels = describe_kernels(lowered, network.layers, task_keys)
    return Compiled(built, target.runs_on, target.threads, memory.to_json(), kernels, cpp_runtime=target.cpp_runtime)


def lower_network(network: MatchedNetwork, target: Device) -> tuple[tvm.IRModule, dict[Workload, str]]:
    """Return a network's scheduled functions, and why workloads have no template's schedule; see `lower`."""
    choices = {
        match.task.workload: Choice(target.template(match.task.workload), match.config)
        for match in network.matches
        if match.config is not None
    }
    if not network.model.ranges:
        return lower(network.imported.module, choices, target.schedule_default)
    return _lower_for_ranges(network, cast("DynamicShapeDevice", target), choices)


def _lower_for_ranges(
    network: MatchedNetwork, target: DynamicShapeDevice, choices: Mapping[Workload, Choice]
) -> tuple[tvm.IRModule, dict[Workload, str]]:
    """Return what `lower_network` does where sizes vary, given the programs of the usual ones."""
    choices = {
        workload: replace(choice, config=target.spread(workload, choice.config)) for workload, choice in choices.items()
    }
    packed: PackedWeights = {}
    module, failures = lower(network.imported.module, choices, target.schedule_default, packed)
    scheduled = {workload: choice for workload, choice in choices.items() if workload not in failures}
    if small := _small_choices(network, target, scheduled):
        both = {**choices, **small}
        others, failed = lower(network.imported.module, both, target.schedule_default, packed, only=small)
        if not failed:
            module = with_small_sizes(module, others)
    return module, failures


def _small_choices(
    network: MatchedNetwork, target: Device, choices: Mapping[Workload, Choice]
) -> dict[Workload, Choice]:
    """Return the programs that the least sizes have for themselves: those with clearly fewer weights.

    Little else than reading weights takes time where sizes are small.
    """
    least = {name: sizes.min for name, sizes in symbol_names(network.model.ranges).items()}
    module = relax.transform.BindSymbolicVars(least)(network.imported.module)
    layers = find_layers(replace(network.imported, module=module))
    found = {}
    for own, few in zip(network.layers, layers, strict=True):
        choice = choices.get(own.workload)
        if choice is not None and own.workload.constant_weight and few.workload != own.workload:
            config = target.default_config(few.workload)
            packed = [prod(choice.template.packed_shape(few.workload, each)) for each in (config, choice.config)]
            if packed[0] <= _FEWER_WEIGHTS * packed[1]:
                found[own.workload] = replace(choice, config=config)
    return found


def describe_kernels(
    module: tvm.IRModule, layers: Iterable[Layer], task_keys: Mapping[Workload, str]
) -> tuple[BuiltKernel, ...]:
    """Return the kernels of a lowered module, in the order of their first call.

    Args:
        module: the module that `anole.compile.lower.lower` returned.
        layers: the network's anchor operators, in the order of execution.
        task_keys: the keys of the tasks; a workload that is not tuned on this target has none.
    """
    waiting = defaultdict[Workload | None, list[str]](list)
    for layer in layers:
        waiting[layer.workload].append(layer.name)
    held = defaultdict[ir.GlobalVar, list[str]](list)
    for variable in (call.args[0] for call in calls_of(module)):
        names = waiting[anchored(module[variable])]
        held[variable].append(names.pop(0) if names else "")
    kernels = []
    for variable, names in held.items():
        func = module[variable]
        workload = anchored(func)
        kernels.append(
            BuiltKernel(
                name=str(variable.name_hint),
                calls=len(names),
                task=None if workload is None else task_keys.get(workload),
                layers=tuple(filter(None, names)),
                flop=0 if workload is None else workload.flop,
                size_bytes=_moved_bytes(func),
                dtype=None if workload is None or workload.dtype == "float32" else workload.dtype,
                weights=f"int{scheme.bits}" if workload is not None and (scheme := weight_scheme(workload)) else None,
            )
        )
    return tuple(kernels)


def _moved_bytes(func: tirx.PrimFunc) -> int:
    """Return the bytes that one call reads and writes if it touches every element of its operands once."""
    params = (param for param in func.params if str(param.name) != SMALL_WEIGHTS)
    sizes = [size_bytes(param.ty) for param in params if hasattr(param.ty, "shape")]
    written = func.attrs.get(WRITTEN_BYTES) if func.attrs else None
    return sum(sizes) if written is None else sum(sizes[:-1]) + int(written)


_PLANNING = "StaticPlanBlockMemory"


@pass_instrument
class MemoryPlan:
    """Observes a compilation and records the planned memory.

    Attributes:
        activation_bytes: storage for all intermediate tensors; tensors that are not live at once share it.
        weight_bytes: size of the constants.
    """

    activation_bytes = 0
    weight_bytes = 0

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        """Count after the memory planning pass; TVM calls it after every pass."""
        if info.name == _PLANNING:
            for _, function in module.functions_items():
                if isinstance(function, relax.Function):
                    relax.analysis.post_order_visit(function, self._count)

    def to_json(self) -> dict[str, int]:
        """Return the plain form, as in build.json."""
        return {"activation_bytes": self.activation_bytes, "weight_bytes": self.weight_bytes}

    def _count(self, expression: ir.Expr) -> None:
        if isinstance(expression, ir.GenericConst) and isinstance(expression.value, tvm.runtime.Tensor):
            self.weight_bytes += size_bytes(expression.ty)
        elif isinstance(expression, ir.Call) and isinstance(expression.op, ir.Op):
            if expression.op.name == "relax.memory.alloc_storage":
                self.activation_bytes += prod(map(int, expression.args[0].values))
            elif expression.op.name == "relax.builtin.alloc_tensor":
                self.activation_bytes += size_bytes(expression.ty)
