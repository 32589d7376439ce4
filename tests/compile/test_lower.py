"""A lowered network computes what the model computes, whatever the configs, and leaves nothing unscheduled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir, relax, tirx

from anole.compile.lower import Choice, lower
from anole.space import ALGORITHM
from anole.targets.base import ANCHOR
from anole.targets.cpu.templates.winograd_space import can_winograd
from anole.task import Conv2d


def choices(network: Any, seed: int | None = None) -> dict[Any, Choice]:
    """The default config of each task, or a random one."""
    target, chosen = network.target, {}
    for position, workload in enumerate(network.tasks):
        config: Mapping[str, Any] = target.default_config(workload)
        if seed is not None:
            space = target.space(workload)
            config = space.config(space.sample(1, np.random.default_rng([seed, position]))[0])
        chosen[workload] = Choice(target.template(workload), config)
    return chosen


def run(network: Any, module: tvm.IRModule) -> list[np.ndarray]:
    target = network.target
    executable = tvm.compile(module, target.compiler_target(), tir_pipeline=target.compiler_pipeline())
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]
    tensors = [tvm.runtime.tensor(array) for array in network.inputs]
    # Twice, as memory of the first run is used again by the second.
    for _ in range(2):
        found = main(*tensors)
    return [found.numpy()] if isinstance(found, tvm.runtime.Tensor) else [each.numpy() for each in found]


def calls(module: tvm.IRModule) -> list[ir.Call]:
    """The calls of functions, in order."""
    values = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    return [value for value in values if isinstance(value, ir.Call) and "call_tir" in value.op.name]


def is_anchor(func: tirx.PrimFunc) -> bool:
    found = []

    def visit(block: Any) -> None:
        found.append(ANCHOR in block.annotations)

    tvm_ffi.structural_walk(func.body, (tvm.s_tir.SBlock, visit))
    return any(found)


def anchors(module: tvm.IRModule) -> list[tuple[ir.GlobalVar, tirx.PrimFunc]]:
    functions = [(variable, func) for variable, func in module.functions_items() if isinstance(func, tirx.PrimFunc)]
    return [(variable, func) for variable, func in functions if is_anchor(func)]


def is_parallel(func: tirx.PrimFunc) -> bool:
    """Whether nothing in a function is outside of parallel loops."""
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
    module, failures = lower(net.imported.module, choices(net, seed), net.target.schedule_default)
    assert not failures
    assert not [variable.name_hint for variable, func in anchors(module) if not is_parallel(func)]
    net.check(run(net, module))


@pytest.mark.parametrize(("name", "size"), [("residual", 2), ("residual", 6), ("branches", 4)])
@pytest.mark.examples(1)
def test_winograd_computes_the_same(network: Callable[[str], Any], name: str, size: int) -> None:
    net = network(name)
    chosen = choices(net)
    for workload in [workload for workload in net.tasks if isinstance(workload, Conv2d) and can_winograd(workload)]:
        space = net.target.space(workload).restricted({ALGORITHM: ["winograd"], "tile_size": [size]})
        config = space.config(space.sample(1, np.random.default_rng(size))[0])
        chosen[workload] = Choice(net.target.template(workload), config)
    module, failures = lower(net.imported.module, chosen, net.target.schedule_default)
    assert not failures
    assert any("winograd_product" in func.script() for _, func in anchors(module))
    net.check(run(net, module))


def test_epilogues_are_fused_behind_their_anchor(network: Callable[[str], Any]) -> None:
    net = network("residual")
    module, _ = lower(net.imported.module, choices(net), net.target.schedule_default)
    functions = [module[call.args[0]] for call in calls(module)]
    # To channels last, four anchors with bias, residual and relu behind them, a pool and a mean.
    assert [is_anchor(func) for func in functions] == [False, True, False, True, True, False, True]


def test_a_gate_is_not_multiplied_in_the_loops_that_compute_it(network: Callable[[str], Any]) -> None:
    net = network("gated")
    module, _ = lower(net.imported.module, choices(net), net.target.schedule_default)
    made = [prod(map(int, call.ty.shape)) for call in calls(module) if is_anchor(module[call.args[0]])]
    assert made == [24 * 9 * 19, 3, 24, 4 * 9 * 19]


def test_convolutions_of_all_sorts_are_anchors_with_their_epilogues(network: Callable[[str], Any]) -> None:
    net = network("enlarged")
    module, _ = lower(net.imported.module, choices(net), net.target.schedule_default)
    functions = [module[call.args[0]] for call in calls(module)]
    # To channels last; what enlarges, and its pixels to their places; what mixes; to channels first, a mean, and back;
    # what is along; a pool; what shortens; to channels first.
    order = [False, True, False, True, False, False, False, True, False, True, False]
    assert [is_anchor(func) for func in functions] == order


def test_a_concatenation_is_written_by_what_computes_it(network: Callable[[str], Any]) -> None:
    net = network("branches")
    module, _ = lower(net.imported.module, choices(net), net.target.schedule_default)
    names = [variable.name_hint for variable, _ in module.functions_items()]
    assert not [name for name in names if name.startswith("concat")]
    in_place = [call for call in calls(module) if call.op.name == "relax.call_tir_inplace"]
    assert len(in_place) == sum(operands - 1 for operands in (2, 3, 2, 3))
    # What others read too is copied, and what is itself a concatenation: all of `dense` and of `twice`.
    copies = [call for call in calls(module) if call.args[0].name_hint.startswith("copy_slice")]
    assert len(copies) == 3 + 2


def test_what_a_template_cannot_schedule_gets_the_default(network: Callable[[str], Any]) -> None:
    net = network("residual")

    class Stubborn:
        def __init__(self, template: Any) -> None:
            self.packed_shape, self.pack_weight = template.packed_shape, template.pack_weight
            self.compute = template.compute

        def schedule(self, func: tirx.PrimFunc, workload: Any, config: Any) -> tirx.PrimFunc:
            raise ValueError("not with this epilogue")

    stubborn = {workload: Choice(Stubborn(c.template), c.config) for workload, c in choices(net).items()}
    module, failures = lower(net.imported.module, stubborn, net.target.schedule_default)
    assert failures == dict.fromkeys(net.tasks, "ValueError: not with this epilogue")
    net.check(run(net, module))
