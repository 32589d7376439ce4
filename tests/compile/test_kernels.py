"""A build knows its kernels: how often each is called, which layers it holds, and how much memory it moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from anole.compile.kernels import Kernel, describe_kernels
from anole.compile.lower import Choice, lower
from anole.extract.graph import find_layers


def kernels_of(network: Any) -> list[Kernel]:
    choices = {
        each: Choice(network.target.template(each), network.target.default_config(each)) for each in network.tasks
    }
    module, _ = lower(network.imported.module, choices, network.target.schedule_default)
    return describe_kernels(module, find_layers(network.imported))


def test_every_layer_is_in_the_kernel_of_its_task(network: Callable[[str], Any]) -> None:
    net = network("residual")
    kernels = kernels_of(net)
    assert [kernel.layers for kernel in kernels if kernel.layers] == [
        ("stem.0",), ("first.0",), ("second.0",), ("head",)
    ]  # fmt: skip
    workloads = Counter(layer.workload for layer in find_layers(net.imported))
    assert Counter(kernel.workload for kernel in kernels if kernel.workload is not None) == workloads
    keys = {workload: task.key for workload, task in net.tasks.items()}
    for kernel in kernels:
        built = kernel.built(keys)
        assert (built.task is None) == (built.flop == 0) == (kernel.workload is None)
        assert kernel.calls == max(1, len(kernel.layers))


def test_a_kernel_that_is_called_twice_stands_for_both_layers(network: Callable[[str], Any]) -> None:
    kernels = kernels_of(network("twins"))
    assert [(kernel.calls, kernel.layers) for kernel in kernels if kernel.layers] == [(2, ("0", "2"))]


def test_bytes_are_those_of_all_operands(network: Callable[[str], Any]) -> None:
    pool = next(kernel for kernel in kernels_of(network("residual")) if kernel.name.startswith("max_pool"))
    assert pool.size_bytes == 4 * 16 * (16 * 16 + 8 * 8)


def test_who_writes_a_slice_moves_no_more_than_that(network: Callable[[str], Any]) -> None:
    kernels = kernels_of(network("branches"))
    copies = {kernel.size_bytes for kernel in kernels if kernel.name.startswith("copy_slice")}
    # Each copies a whole operand: 3, 8 or 40 channels of 12 times 12 pixels.
    assert copies == {2 * 4 * channels * 12 * 12 for channels in (3, 8, 40)}
