"""Permutations are removed or made smaller, and results stay the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import prod

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import ir, relax

from anole.compiler.passes.views import keeps_order, mean_before_permuting, permute_before_enlarging, simplify_views

from ...extract.passes.building import Build, module_of, operators, random_array, run

SHAPE = (2, 4, 6, 3)
TO_CHANNELS_FIRST = [0, 3, 1, 2]


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return a shape, a permutation, another shape with the same factors and elements, and a permutation."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    first = draw(st.sampled_from(list(permutations(range(len(shape))))))
    pieces = [piece for axis in first for piece in {4: [2, 2], 6: [2, 3]}.get(shape[axis], [shape[axis]])]
    cuts = sorted(draw(st.sets(st.integers(1, len(pieces) - 1)))) if len(pieces) > 1 else []
    between = [prod(pieces[low:high]) for low, high in zip([0, *cuts], [*cuts, len(pieces)], strict=True)][:5]
    between.append(prod(shape) // prod(between))
    return shape, list(first), between, draw(st.permutations(range(len(between))))


@given(chains())
def test_order_is_kept_if_elements_agree(chain: tuple[list[int], list[int], list[int], list[int]]) -> None:
    shape, first, between, second = chain
    data = np.arange(prod(shape)).reshape(shape)
    moved = data.transpose(first).reshape(between).transpose(second).ravel()
    assert keeps_order(shape, first, between, second) == bool((moved == data.ravel()).all())


def tokens(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    first = builder.emit(relax.op.permute_dims(x, TO_CHANNELS_FIRST))
    return relax.op.permute_dims(builder.emit(relax.op.reshape(first, (2, 3, 24))), [0, 2, 1])


def windows(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    first = builder.emit(relax.op.permute_dims(x, TO_CHANNELS_FIRST))
    return relax.op.permute_dims(builder.emit(relax.op.reshape(first, (2, 3, 2, 2, 6))), [0, 3, 2, 4, 1])


def last_of_permuted(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return relax.op.strided_slice(builder.emit(relax.op.permute_dims(x, [3, 0, 2, 1])), [-2], [2], [6], [3])


def mean(order: list[int] | None, axes: list[int] | None, keepdims: bool) -> Build:
    return lambda builder, x: relax.op.mean(builder.emit(relax.op.permute_dims(x, order)), axes, keepdims)


def enlarge(size: tuple[int, int], reads_twice: bool = False) -> Build:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        resized = builder.emit(relax.op.image.resize2d(x, size, None, "NHWC", "linear"))
        first = builder.emit(relax.op.permute_dims(resized, TO_CHANNELS_FIRST))
        return relax.op.add(first, relax.op.sum(resized)) if reads_twice else first

    return build


MEANS = [
    ([0, 3, 1, 2], [2, 3]), ([0, 3, 1, 2], [-1, -2]), ([0, 3, 1, 2], [1]), (None, None), ([0, 2, 1, 3], [1]),
]  # fmt: skip


@pytest.mark.examples(8)
@pytest.mark.parametrize(
    ("change", "build", "expected"),
    [
        (simplify_views, tokens, "reshape"),
        (simplify_views, windows, "permute_dims reshape permute_dims"),
        (simplify_views, last_of_permuted, "strided_slice permute_dims"),
        *(
            (mean_before_permuting, mean(order, axes, keepdims), "mean reshape")
            for order, axes in MEANS
            for keepdims in (False, True)
        ),
        pytest.param(mean_before_permuting, mean([0, 3, 1, 2], [0], False), "permute_dims mean", id="reorders axes"),
        (permute_before_enlarging, enlarge((10, 9)), "permute_dims resize2d"),
        pytest.param(permute_before_enlarging, enlarge((3, 3)), "resize2d permute_dims", id="shrinks"),
        pytest.param(
            permute_before_enlarging, enlarge((10, 9), True), "resize2d permute_dims sum add", id="also read as is"
        ),
    ],
)
def test_permutations_vanish_or_shrink(
    change: Callable[[tvm.IRModule], tvm.IRModule], build: Build, expected: str
) -> None:
    before, data = module_of(build, SHAPE), random_array(*SHAPE)
    after = change(before)
    assert operators(after) == expected.split()
    np.testing.assert_allclose(run(after, data), run(before, data), rtol=1e-5, atol=1e-6)


def test_every_function_of_a_module_is_rewritten() -> None:
    module = module_of(mean([0, 3, 1, 2], [2, 3], True), SHAPE)
    parts = tvm.IRModule({"host0": module["main"].with_attr("global_symbol", "host0")})
    assert "R.permute_dims" not in mean_before_permuting(parts).script()
