"""Reductions with several independent results are split into one block per result."""

from __future__ import annotations

import pytest
from tvm import s_tir, te, tirx, topi

from anole.targets.cpu.default.split_reductions import separate_results


def blocks(func: tirx.PrimFunc) -> list[s_tir.SBlock]:
    schedule = s_tir.Schedule(func)
    return [schedule.get(rv) for rv in schedule.get_child_blocks(schedule.get_sblock("root"))]


def n_stores(block: s_tir.SBlock) -> int:
    return 1 if isinstance(block.body, tirx.BufferStore) else len(block.body.seq)


def norm() -> tirx.PrimFunc:
    data, scale, bias = (
        te.placeholder(shape, name=name) for name, shape in (("x", (8, 30)), ("g", (30,)), ("b", (30,)))
    )
    return te.create_prim_func([data, scale, bias, topi.nn.group_norm(data, scale, bias, 3, 1, [])])


def test_a_sum_and_a_sum_of_squares_are_split() -> None:
    assert max(map(n_stores, blocks(norm()))) > 1
    assert max(map(n_stores, blocks(separate_results(norm())))) == 1


@pytest.mark.parametrize("definition", [lambda x: topi.argmax(x, 1), topi.nn.relu])
def test_interdependent_and_single_results_stay(definition: object) -> None:
    data = te.placeholder((8, 30), name="x")
    func = te.create_prim_func([data, definition(data)])  # type: ignore[operator]
    assert separate_results(func).same_as(func)
