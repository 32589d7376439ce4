"""Compiles networks for a device with TVM and the best known configs."""

from __future__ import annotations

from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.ir.instrument import pass_instrument

from anole.compile.folder import write_library
from anole.compile.kernels import describe_kernels
from anole.compile.lower import Choice, lower
from anole.compile.network_compiler import Compiled, MatchedNetwork
from anole.errors import BuildError, cause
from anole.targets.base import Device
from anole.task import Workload


def compile_for_device(network: MatchedNetwork, target: Device, folder: Path) -> Compiled:
    """Writes the compiled network as a shared library; see `NetworkCompiler`."""
    memory = MemoryPlan()
    try:
        lowered, failures = lower_network(network, target)
        options = tvm.transform.PassContext(config=dict(target.compiler_options), instruments=[memory])
        with target.compiler_target() as compiler_target, options:
            executable = tvm.compile(lowered, compiler_target, tir_pipeline=target.compiler_pipeline())
    except Exception as error:
        raise BuildError(f"model {network.model.name}: TVM cannot compile it: {cause(error)}") from error
    unschedulable = {
        workload: f"its template could not schedule it in this network: {reason}"
        for workload, reason in failures.items()
    }
    with TemporaryDirectory(prefix="anole-") as objects:
        write_library(folder / "model.so", executable, target.runtime_objects(Path(objects)))
    built = [
        match.unscheduled_for(unschedulable[match.task.workload]) if match.task.workload in unschedulable else match
        for match in network.matches
    ]
    task_keys = {match.task.workload: match.task.key for match in network.matches}
    kernels = tuple(kernel.built(task_keys) for kernel in describe_kernels(lowered, network.layers))
    return Compiled(built, target.runs_on, target.threads, memory.to_json(), kernels, cpp_runtime=target.cpp_runtime)


def lower_network(network: MatchedNetwork, target: Device) -> tuple[tvm.IRModule, dict[Workload, str]]:
    """Returns a network's scheduled functions, and why workloads have no template's schedule; see `lower`."""
    choices = {
        match.task.workload: Choice(target.template(match.task.workload), match.config)
        for match in network.matches
        if match.config is not None
    }
    return lower(network.imported.module, choices, target.schedule_default)


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
        """Counts after the memory planning pass; TVM calls it after every pass."""
        if info.name == _PLANNING:
            for _, function in module.functions_items():
                if isinstance(function, relax.Function):
                    relax.analysis.post_order_visit(function, self._count)

    def to_json(self) -> dict[str, int]:
        """Returns the plain form, as in build.json."""
        return {"activation_bytes": self.activation_bytes, "weight_bytes": self.weight_bytes}

    def _count(self, expression: ir.Expr) -> None:
        if isinstance(expression, ir.GenericConst) and isinstance(expression.value, tvm.runtime.Tensor):
            self.weight_bytes += expression.value.numpy().nbytes
        elif isinstance(expression, ir.Call) and isinstance(expression.op, ir.Op):
            if expression.op.name == "relax.memory.alloc_storage":
                self.activation_bytes += prod(map(int, expression.args[0].values))
            elif expression.op.name == "relax.builtin.alloc_tensor":
                self.activation_bytes += (
                    prod(map(int, expression.ty.shape)) * np.dtype(str(expression.ty.dtype)).itemsize
                )
