"""Sums of convolutions of the same data become one convolution, and compute what they did."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import ir, relax

from anole.extract.passes.join_branches import join_branches

from ...examples import examples
from .building import drawn, module_of, operators, run

X = drawn(2, 7, 6, 4)

Branch = Callable[[relax.BlockBuilder, ir.Expr], ir.Expr]
"""From the data to what one branch computes of it."""


def same(kernel: int, dilation: int = 1, groups: int = 1, results: int = 4, bias: bool = False, **other: Any) -> Branch:
    """A convolution that keeps the image's size."""

    def branch(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        weight = relax.const(drawn(kernel, kernel, 4 // groups, results, seed=kernel + dilation))
        pads = {"padding": (kernel // 2 * dilation,) * 4, "dilation": (dilation,) * 2} | other
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        result = builder.emit(relax.op.nn.conv2d(x, weight, groups=groups, **layouts, **pads))
        return builder.emit(relax.op.add(result, relax.const(drawn(results)))) if bias else result

    return branch


def itself(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return x


def normalised(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """What a batch-norm of the data itself becomes."""
    scaled = builder.emit(relax.op.multiply(x, relax.const(drawn(4))))
    return builder.emit(relax.op.add(scaled, relax.const(drawn(1, 1, 1, 4, seed=1))))


def by_another_name(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return same(1)(builder, builder.emit(x))


def strided(kernel: int) -> Branch:
    return same(kernel, strides=(2, 2))


def sum_of(*branches: Branch) -> Callable[[relax.BlockBuilder, ir.Expr], ir.Expr]:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        parts = [branch(builder, x) for branch in branches]
        return reduce(lambda total, part: builder.emit(relax.op.add(total, part)), parts)

    return build


@pytest.mark.parametrize(
    ("branches", "left"),
    [
        ([same(3), same(1)], ["conv2d"]),
        ([same(1), same(3)], ["conv2d"]),
        ([same(3, bias=True), same(1, bias=True), normalised], ["conv2d", "add"]),
        ([normalised, same(1), same(3), same(3, bias=True)], ["conv2d", "add"]),
        ([same(3), itself], ["conv2d"]),
        ([itself, same(1, bias=True)], ["conv2d", "add"]),
        ([same(3, groups=4), same(1, groups=4), normalised], ["conv2d", "add"]),
        ([same(3, groups=2), same(5, groups=2), itself], ["conv2d"]),
        ([strided(3), strided(1)], ["conv2d"]),
        ([same(3), by_another_name], ["conv2d"]),
        ([same(3, dilation=2), same(1)], ["conv2d"]),
        ([same(3, results=6), same(1, results=6, bias=True)], ["conv2d", "add"]),
    ],
)
@pytest.mark.examples(2)
def test_one_convolution_is_left(branches: list[Branch], left: list[str]) -> None:
    before = module_of(sum_of(*branches), X.shape)
    after = join_branches(before)
    assert operators(after) == left
    np.testing.assert_allclose(run(after, X), run(before, X), rtol=1e-4, atol=1e-4)


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    "branches",
    [
        pytest.param([same(3), same(3, dilation=2)], id="taps on different grids"),
        pytest.param([same(1), same(3, dilation=3), same(3)], id="the last on another grid"),
        pytest.param([same(3), same(3, groups=2)], id="other groups"),
        pytest.param([itself, itself], id="no convolution"),
        pytest.param([same(3), lambda builder, x: builder.emit(relax.op.nn.relu(x))], id="other data"),
        pytest.param(
            [same(3), lambda builder, x: same(1)(builder, builder.emit(relax.op.nn.relu(x)))],
            id="convolutions of other data",
        ),
    ],
)
def test_what_would_not_compute_the_same_is_left(branches: list[Branch]) -> None:
    before = module_of(sum_of(*branches), X.shape)
    assert operators(join_branches(before)).count("add") >= 1
    np.testing.assert_allclose(run(join_branches(before), X), run(before, X), rtol=1e-4, atol=1e-4)


def test_crossed_kernels_are_left_as_one_would_compute_more() -> None:
    def crossed(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        row = relax.op.nn.conv2d(x, relax.const(drawn(1, 3, 4, 4)), padding=(0, 1, 0, 1), **layouts)
        column = relax.op.nn.conv2d(x, relax.const(drawn(3, 1, 4, 4)), padding=(1, 0, 1, 0), **layouts)
        return relax.op.add(builder.emit(row), builder.emit(column))

    assert operators(join_branches(module_of(crossed, X.shape))) == ["conv2d", "conv2d", "add"]


def test_what_another_call_reads_is_still_computed() -> None:
    def read_twice(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        first = same(3)(builder, x)
        total = builder.emit(relax.op.add(first, same(1)(builder, x)))
        return relax.op.maximum(total, first)

    before = module_of(read_twice, X.shape)
    assert operators(join_branches(before)) == ["conv2d", "conv2d", "add", "maximum"]


@pytest.mark.guard
@settings(max_examples=examples(25), deadline=None)
@given(
    kernels=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=3),
    befores=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=3),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    outputs=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_the_answer_is_the_same_for_kernels_that_begin_anywhere(
    kernels: list[tuple[int, int]],
    befores: list[tuple[int, int]],
    strides: tuple[int, int],
    outputs: tuple[int, int],
    dilation: tuple[int, int],
) -> None:
    spans = [[dilation[i] * (kernel[i] - 1) + 1 for i in range(2)] for kernel in kernels]
    starts = [[min(before[i], span[i] - 1) for i in range(2)] for before, span in zip(befores, spans, strict=False)]
    reached = [
        [(outputs[i] - 1) * strides[i] + span[i] - start[i] for i in range(2)]
        for span, start in zip(spans, starts, strict=True)
    ]
    size = [min(each[i] for each in reached) for i in range(2)]

    def convolution(at: int) -> Branch:
        padding = (*starts[at], *(reached[at][i] - size[i] for i in range(2)))
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        weight = relax.const(drawn(*kernels[at], 4, 4, seed=at))
        attributes = {"strides": strides, "padding": padding, "dilation": dilation} | layouts
        return lambda builder, x: builder.emit(relax.op.nn.conv2d(x, weight, **attributes))

    x = drawn(1, *size, 4)
    before = module_of(sum_of(*map(convolution, range(len(kernels)))), x.shape)
    np.testing.assert_allclose(run(join_branches(before), x), run(before, x), rtol=1e-4, atol=1e-4)
