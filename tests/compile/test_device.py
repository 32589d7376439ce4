"""What a compiled network is said to take: its constants in full, and less for what is in between than all together."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import tvm

from anole.compile.device import MemoryPlan
from anole.compile.lower import Choice, lower
from anole.extract.graph import find_layers
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.targets.shared.reference import out_shape


def test_memory_is_that_of_all_constants_and_of_shared_storage(network: Callable[[str], Any]) -> None:
    net, target, plan = network("residual"), get_target(describe_cpu(threads=1)), MemoryPlan()
    choices = {task: Choice(target.template(task), target.default_config(task)) for task in net.tasks}
    module, _ = lower(net.imported.module, choices, target.schedule_default)
    with target.compiler_target() as compiler_target, tvm.transform.PassContext(instruments=[plan]):
        tvm.compile(module, compiler_target, tir_pipeline=target.compiler_pipeline())
    workloads = [layer.workload for layer in find_layers(net.imported)]
    packed = [choices[workload].template.packed_shape(workload, choices[workload].config) for workload in workloads]
    # A bias of fewer channels than a register has lanes is filled up with zeros.
    biases = [max(16, out_shape(workload)[-1]) for workload in workloads]
    assert plan.weight_bytes == 4 * (sum(map(prod, packed)) + sum(biases))
    outputs = [4 * prod(out_shape(workload)) for workload in workloads]
    assert max(outputs) <= plan.activation_bytes < 2 * sum(outputs)
