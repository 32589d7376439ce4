"""Compiles networks for a device with TVM and the best known configs."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import tvm

from anole.compile.folder import write_library
from anole.compile.kernels import describe_kernels
from anole.compile.lower import Choice, lower
from anole.compile.memory_plan import MemoryPlan
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
