"""The description of a compiled network: its kernels, their layers and traffic, and its memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import tvm

from anole.compiler.device import MemoryPlan, describe_kernels
from anole.documents.build import BuiltKernel
from anole.extract.graph import find_layers, for_target
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.targets.shared.reference import out_shape

from .conftest import by_default, lower_network


def kernels_of(net: Any) -> tuple[BuiltKernel, ...]:
    keys = {workload: task.key for workload, task in net.tasks.items()}
    return describe_kernels(lower_network(net.imported, net.target), find_layers(net.imported), keys)


def test_every_layer_is_in_the_kernel_of_its_task(network: Callable[[str], Any]) -> None:
    net = network("residual")
    kernels = kernels_of(net)
    assert [kernel.layers for kernel in kernels if kernel.layers] == [
        ("stem.0",), ("first.0",), ("second.0",), ("head",)
    ]  # fmt: skip
    tasks = Counter(net.tasks[layer.workload].key for layer in find_layers(net.imported))
    assert Counter(kernel.task for kernel in kernels if kernel.task is not None) == tasks
    for kernel in kernels:
        assert (kernel.task is None) == (kernel.flop == 0) == (not kernel.layers)
        assert kernel.calls == max(1, len(kernel.layers))
    pool = next(kernel for kernel in kernels if kernel.name.startswith("max_pool"))
    assert pool.size_bytes == 4 * 16 * (16 * 16 + 8 * 8)


def test_a_kernel_called_twice_lists_both_layers(network: Callable[[str], Any]) -> None:
    kernels = kernels_of(network("twins"))
    assert [(kernel.calls, kernel.layers) for kernel in kernels if kernel.layers] == [(2, ("0", "2"))]


def test_a_kernel_has_the_dtype_that_it_multiplies(network: Callable[[str], Any]) -> None:
    net = network("residual")
    target = get_target(describe_cpu(mcpu="znver4", model="elsewhere", threads=2, precision="bf16"))
    kernels = kernels_of(replace(net, target=target, imported=for_target(net.imported, target)))
    dtypes = {name: kernel.dtype for kernel in kernels for name in kernel.layers or (kernel.name,)}
    # The three channels of the first layer do not fill pairs of bf16 values.
    assert dtypes["stem.0"] is None and dtypes["head"] == "bfloat16"
    assert {kernel.dtype for kernel in kernels if not kernel.flop} == {None}


def test_a_kernel_that_writes_a_slice_counts_only_its_bytes(network: Callable[[str], Any]) -> None:
    kernels = kernels_of(network("branches"))
    copies = {kernel.size_bytes for kernel in kernels if kernel.name.startswith("copy_slice")}
    # Each copies an entire operand: 3, 8 or 40 channels of 12 times 12 pixels.
    assert copies == {2 * 4 * channels * 12 * 12 for channels in (3, 8, 40)}


def test_memory_covers_all_constants_and_shared_storage(network: Callable[[str], Any]) -> None:
    net, plan = network("residual"), MemoryPlan()
    target, module = net.target, lower_network(net.imported, net.target)
    with target.compiler_target() as compiler_target, tvm.transform.PassContext(instruments=[plan]):
        tvm.compile(module, compiler_target, tir_pipeline=target.compiler_pipeline())
    workloads = [layer.workload for layer in find_layers(net.imported)]
    choices = {workload: by_default(target, workload) for workload in workloads}
    packed = [choices[workload].template.packed_shape(workload, choices[workload].config) for workload in workloads]
    # A bias with fewer channels than a register has lanes is padded with zeros.
    biases = [max(16, out_shape(workload)[-1]) for workload in workloads]
    assert plan.weight_bytes == 4 * (sum(map(prod, packed)) + sum(biases))
    outputs = [4 * prod(out_shape(workload)) for workload in workloads]
    assert max(outputs) <= plan.activation_bytes < 2 * sum(outputs)
