"""A lowered network computes the model's results with any configs, and leaves nothing unscheduled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from anole.compiler.lower import Choice, PackedWeights, lower
from anole.extract.graph import find_layers, for_target
from anole.ir.kernel_calls import anchor_workload
from anole.ir.nodes import collect
from anole.space import ALGORITHM
from anole.targets import get_target
from anole.targets.base import ANCHOR
from anole.targets.cpu.templates.winograd_space import can_winograd
from anole.task import BatchMatmul, Conv2d, Dense, WeightScheme, Workload, weight_scheme

from .conftest import by_default, calls_of, functions, lower_network, random_config


def by_winograd(size: int, target: Any, workload: Workload) -> Choice:
    """Return a Winograd program if the workload allows it, and the default otherwise."""
    if not (isinstance(workload, Conv2d) and can_winograd(workload)):
        return by_default(target, workload)
    space = target.space(workload).restrict({ALGORITHM: ["winograd"], "tile_size": [size]})
    return Choice(target.template(workload), space.config(space.sample(1, np.random.default_rng(size))[0]))


def run(network: Any, module: tvm.IRModule) -> list[np.ndarray]:
    target = network.target
    executable = tvm.compile(module, target.compiler_target(), tir_pipeline=target.compiler_pipeline())
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]
    tensors = [tvm.runtime.tensor(array) for array in network.inputs]
    # Run twice, as the second run reuses memory of the first.
    for _ in range(2):
        found = main(*tensors)
    return [found.numpy()] if isinstance(found, tvm.runtime.Tensor) else [each.numpy() for each in found]


def is_anchor(func: tirx.PrimFunc) -> bool:
    return any(ANCHOR in block.annotations for block in collect(func.body, tvm.s_tir.SBlock))


def is_parallel(func: tirx.PrimFunc) -> bool:
    """Whether all code of a function is in parallel loops."""
    body = func.body.block.body
    loops = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    return all(isinstance(loop, tirx.For) and loop.kind == tirx.ForKind.PARALLEL for loop in loops)


@pytest.mark.parametrize(
    "seed",
    [None, pytest.param(0, marks=pytest.mark.guard), *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))],
)
@pytest.mark.parametrize(
    "name",
    [
        "residual",
        *(
            pytest.param(name, marks=pytest.mark.guard)
            for name in ("branches", "norm_last", "joined", "varied", "gated", "summed", "enlarged")
        ),
    ],
)
def test_any_configs_compute_the_same(network: Callable[[str], Any], name: str, seed: int | None) -> None:
    net = network(name)
    module = lower_network(net.imported, net.target, by_default if seed is None else partial(random_config, seed))
    assert not [name for name, func in functions(module).items() if is_anchor(func) and not is_parallel(func)]
    net.check(run(net, module))


@pytest.mark.parametrize(
    "name",
    [
        "norm_last",
        *(pytest.param(name, marks=pytest.mark.guard) for name in ("norm_first", "norm_last.onnx", "norm_first.onnx")),
    ],
)
def test_all_products_of_a_transformer_layer_are_anchors(network: Callable[[str], Any], name: str) -> None:
    net = network(name)
    assert [layer.workload for layer in find_layers(net.imported)] == [
        Dense(32, 32, 96),
        BatchMatmul(8, 16, 8, 16, transpose_right=True),
        BatchMatmul(8, 16, 16, 8),
        Dense(32, 32, 32),
        Dense(32, 32, 64),
        Dense(32, 64, 32),
    ]
    net.check(run(net, lower_network(net.imported, net.target)), rtol=1e-4)


@pytest.mark.parametrize(("name", "size"), [("residual", 2), ("residual", 6), ("branches", 4)])
@pytest.mark.examples(1)
def test_winograd_computes_the_same(network: Callable[[str], Any], name: str, size: int) -> None:
    net = network(name)
    module = lower_network(net.imported, net.target, partial(by_winograd, size))
    assert any("winograd_product" in func.script() for func in functions(module).values() if is_anchor(func))
    net.check(run(net, module))


@pytest.mark.parametrize(
    ("name", "order"),
    [
        # To channels last, four anchors fused with bias, residual and relu, a pool and a mean.
        ("residual", [False, True, False, True, True, False, True]),
        # To channels last; `enlarge` and moving its pixels; `mix`; to channels first, a mean, and back; `along`; a
        # pool; `shorten`; to channels first.
        ("enlarged", [False, True, False, True, False, False, False, True, False, True, False]),
    ],
)
def test_epilogues_are_fused_into_their_anchor(network: Callable[[str], Any], name: str, order: list[bool]) -> None:
    net = network(name)
    module = lower_network(net.imported, net.target)
    assert [is_anchor(module[call.args[0]]) for call in calls_of(module)] == order


def test_a_gate_is_not_multiplied_in_the_loops_that_compute_it(network: Callable[[str], Any]) -> None:
    net = network("gated")
    module = lower_network(net.imported, net.target)
    sizes = [prod(map(int, call.ty.shape)) for call in calls_of(module) if is_anchor(module[call.args[0]])]
    assert sizes == [24 * 9 * 19, 3, 24, 4 * 9 * 19]


def test_operands_are_written_directly_into_their_concatenation(network: Callable[[str], Any]) -> None:
    net = network("branches")
    module = lower_network(net.imported, net.target)
    assert not [name for name in functions(module) if name.startswith("concat")]
    in_place = [call for call in calls_of(module) if call.op.name == "relax.call_tir_inplace"]
    assert len(in_place) == sum(operands - 1 for operands in (2, 3, 2, 3))
    # Operands with other readers and nested concatenations are copied: all of `dense` and of `twice`.
    copies = [call for call in calls_of(module) if call.args[0].name_hint.startswith("copy_slice")]
    assert len(copies) == 3 + 2


def test_workloads_that_a_template_cannot_schedule_get_the_default(network: Callable[[str], Any]) -> None:
    net = network("residual")

    class Failing:
        def __init__(self, template: Any) -> None:
            self.packed_shape, self.pack_weight = template.packed_shape, template.pack_weight
            self.compute = template.compute

        def schedule(self, func: tirx.PrimFunc, workload: Any, config: Any) -> tirx.PrimFunc:
            raise ValueError("not with this epilogue")

    choices = {workload: by_default(net.target, workload) for workload in net.tasks}
    failing = {workload: Choice(Failing(choice.template), choice.config) for workload, choice in choices.items()}
    module, failures = lower(net.imported.module, failing, net.target.schedule_default)
    assert failures == dict.fromkeys(net.tasks, "ValueError: not with this epilogue")
    net.check(run(net, module))


def test_a_second_lowering_reuses_packed_weights_and_schedules_only_given_workloads(
    network: Callable[[str], Any],
) -> None:
    net = network("residual")
    choices, packed = {workload: by_default(net.target, workload) for workload in net.tasks}, PackedWeights()
    lower(net.imported.module, choices, net.target.schedule_default, packed)
    before, (one, *_) = dict(packed), net.tasks
    module, _ = lower(net.imported.module, choices, net.target.schedule_default, packed, only=[one])
    assert before
    assert packed == before
    assert {anchor_workload(func) for func in functions(module).values()} == {None, one}


def test_low_precision_results_are_rounded_in_their_kernel(network: Callable[[str], Any]) -> None:
    plain = network("residual")
    target = get_target({**plain.target.description, "precision": "bf16"})
    rounded = replace(plain, target=target, imported=for_target(plain.imported, target))
    module, other = lower_network(rounded.imported, target), lower_network(plain.imported, plain.target)
    kinds = [workload.dtype for func in functions(module).values() if (workload := anchor_workload(func))]
    assert "bfloat16" in kinds and "float32" in kinds
    assert len(functions(module)) == len(functions(other)), "a rounding has a kernel of its own"
    (found,), (exact,) = run(rounded, module), plain.expected
    assert 1e-5 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 2e-2


@pytest.mark.examples(1)
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_stored_weights_are_unpacked_in_the_kernel_of_their_layer(
    network: Callable[[str], Any], seed: int | None
) -> None:
    plain = network("residual")
    target = get_target({**plain.target.description, "weights": "int8"})
    stored = replace(plain, target=target, imported=for_target(plain.imported, target))
    module = lower_network(stored.imported, target, by_default if seed is None else partial(random_config, seed))
    other = lower_network(plain.imported, plain.target)
    schemes = {weight_scheme(workload) for func in functions(module).values() if (workload := anchor_workload(func))}
    assert schemes == {None, WeightScheme(8, 16)}
    assert len(functions(module)) == len(functions(other))
    (found,), (exact,) = run(stored, module), plain.expected
    assert 1e-5 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 1e-2
