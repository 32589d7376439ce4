"""Compile networks for a device with TVM and the best known configs, and describe their kernels and memory."""

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

from anole.compiler.folder import write_library
from anole.compiler.lower import Choice, PackedWeights, lower
from anole.compiler.network_compiler import Compiled, MatchedNetwork
from anole.compiler.passes.concat import WRITTEN_BYTES
from anole.compiler.passes.small_sizes import SMALL_WEIGHTS, with_small_sizes
from anole.documents.build import BuiltKernel
from anole.errors import BuildError, cause
from anole.extract.graph import Layer, find_layers
from anole.ir.kernel_calls import anchor_workload, calls_of, size_bytes
from anole.ir.symbols import symbol_names
from anole.targets.base import Device, DynamicShapeDevice
from anole.task import Workload, weight_scheme

_MAX_SMALL_WEIGHT_RATIO = 0.75
"""Max size of separately packed weights for small sizes, as a share of the other packed weights."""


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
    matches = [
        match.as_unscheduled(f"the template failed to schedule it in this network: {failures[match.task.workload]}")
        if match.task.workload in failures
        else match
        for match in network.matches
    ]
    task_keys = {match.task.workload: match.task.key for match in network.matches}
    kernels = describe_kernels(lowered, network.layers, task_keys)
    return Compiled(matches, target.runs_on, target.threads, memory.to_json(), kernels, cpp_runtime=target.cpp_runtime)


def lower_network(network: MatchedNetwork, target: Device) -> tuple[tvm.IRModule, dict[Workload, str]]:
    """Lower a network to scheduled functions, and return the failures of templates by workload; see `lower`."""
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
    """Lower a network with size ranges, given the choices for typical sizes; see `lower_network`."""
    choices = {
        workload: replace(choice, config=target.spread(workload, choice.config)) for workload, choice in choices.items()
    }
    packed: PackedWeights = {}
    module, failures = lower(network.imported.module, choices, target.schedule_default, packed)
    scheduled = {workload: choice for workload, choice in choices.items() if workload not in failures}
    if small := _small_choices(network, target, scheduled):
        merged = {**choices, **small}
        small_module, failed = lower(network.imported.module, merged, target.schedule_default, packed, only=small)
        if not failed:
            module = with_small_sizes(module, small_module)
    return module, failures


def _small_choices(
    network: MatchedNetwork, target: Device, choices: Mapping[Workload, Choice]
) -> dict[Workload, Choice]:
    """Return separate choices for the minimum sizes, where their packed weights are clearly smaller.

    At small sizes, reading weights takes nearly all of the time.
    """
    min_sizes = {name: sizes.min for name, sizes in symbol_names(network.model.ranges).items()}
    module = relax.transform.BindSymbolicVars(min_sizes)(network.imported.module)
    layers = find_layers(replace(network.imported, module=module))
    small_choices = {}
    for layer, small in zip(network.layers, layers, strict=True):
        choice = choices.get(layer.workload)
        if choice is not None and layer.workload.constant_weight and small.workload != layer.workload:
            config = target.default_config(small.workload)
            n_packed = [prod(choice.template.packed_shape(small.workload, c)) for c in (config, choice.config)]
            if n_packed[0] <= _MAX_SMALL_WEIGHT_RATIO * n_packed[1]:
                small_choices[layer.workload] = replace(choice, config=config)
    return small_choices


def describe_kernels(
    module: tvm.IRModule, layers: Iterable[Layer], task_keys: Mapping[Workload, str]
) -> tuple[BuiltKernel, ...]:
    """Return the kernels of a lowered module, in the order of their first call.

    Args:
        module: the module that `anole.compiler.lower.lower` returned.
        layers: the network's anchor operators, in execution order.
        task_keys: the keys of the tasks by workload, without workloads that are not tuned on this target.
    """
    unassigned = defaultdict[Workload | None, list[str]](list)
    for layer in layers:
        unassigned[layer.workload].append(layer.name)
    layer_names = defaultdict[ir.GlobalVar, list[str]](list)
    for variable in (call.args[0] for call in calls_of(module)):
        names = unassigned[anchor_workload(module[variable])]
        layer_names[variable].append(names.pop(0) if names else "")
    kernels = []
    for variable, names in layer_names.items():
        func = module[variable]
        workload = anchor_workload(func)
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
    """Return the bytes read and written by one call that touches every element of its operands once."""
    params = (param for param in func.params if str(param.name) != SMALL_WEIGHTS)
    sizes = [size_bytes(param.ty) for param in params if hasattr(param.ty, "shape")]
    slice_bytes = func.attrs.get(WRITTEN_BYTES) if func.attrs else None
    return sum(sizes) if slice_bytes is None else sum(sizes[:-1]) + int(slice_bytes)


_PLANNING_PASS = "StaticPlanBlockMemory"


@pass_instrument
class MemoryPlan:
    """An instrument that records the memory planned by a compilation.

    Attributes:
        activation_bytes: storage for all intermediate tensors; tensors that are never live together share it.
        weight_bytes: size of the constants.
    """

    activation_bytes = 0
    weight_bytes = 0

    def run_after_pass(self, module: tvm.IRModule, info: Any) -> None:
        """Count allocations after the memory planning pass; TVM calls this after every pass."""
        if info.name == _PLANNING_PASS:
            for _, function in module.functions_items():
                if isinstance(function, relax.Function):
                    relax.analysis.post_order_visit(function, self._count)

    def to_json(self) -> dict[str, int]:
        """Return the JSON form, as in build.json."""
        return {"activation_bytes": self.activation_bytes, "weight_bytes": self.weight_bytes}

    def _count(self, expression: ir.Expr) -> None:
        if isinstance(expression, ir.GenericConst) and isinstance(expression.value, tvm.runtime.Tensor):
            self.weight_bytes += size_bytes(expression.ty)
        elif isinstance(expression, ir.Call) and isinstance(expression.op, ir.Op):
            if expression.op.name == "relax.memory.alloc_storage":
                self.activation_bytes += prod(map(int, expression.args[0].values))
            elif expression.op.name == "relax.builtin.alloc_tensor":
                self.activation_bytes += size_bytes(expression.ty)
