"""Sums of convolutions of the same data are merged into one convolution with the same result."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import ir, relax

from anole.extract.passes.join_branches import join_branches

from ...examples import examples
from .building import assert_rewritten, constant, conv2d, module_of, network, operators, random_array

X = random_array(2, 7, 6, 4)

Branch = Callable[[ir.Expr], ir.Expr]
"""A function from the data to a branch's result."""


def conv(kernel: int, dilation: int = 1, groups: int = 1, results: int = 4, bias: bool = False, **extra: Any) -> Branch:
    """Make a convolution that preserves the image size."""
    attributes = {"padding": (kernel // 2 * dilation,) * 4, "dilation": (dilation,) * 2, "groups": groups} | extra

    def branch(x: ir.Expr) -> ir.Expr:
        result = conv2d(x, kernel, kernel, 4 // groups, results, seed=kernel + dilation, **attributes)
        return relax.op.add(result, constant(results, seed=0)) if bias else result

    return branch


def identity(x: ir.Expr) -> ir.Expr:
    return x


def normalize(x: ir.Expr) -> ir.Expr:
    """Return a folded batch norm of the data."""
    return relax.op.add(relax.op.multiply(x, constant(4, seed=0)), constant(1, 1, 1, 4))


def sum_of(*branches: Branch) -> Branch:
    return lambda x: reduce(relax.op.add, [branch(x) for branch in branches])


@pytest.mark.parametrize(
    ("branches", "left"),
    [
        ([conv(3), conv(1)], ["conv2d"]),
        ([conv(1), conv(3)], ["conv2d"]),
        ([conv(3, bias=True), conv(1, bias=True), normalize], ["conv2d", "add"]),
        ([normalize, conv(1), conv(3), conv(3, bias=True)], ["conv2d", "add"]),
        ([conv(3), identity], ["conv2d"]),
        ([identity, conv(1, bias=True)], ["conv2d", "add"]),
        ([conv(3, groups=4), conv(1, groups=4), normalize], ["conv2d", "add"]),
        ([conv(3, groups=2), conv(5, groups=2), identity], ["conv2d"]),
        ([conv(3, strides=(2, 2)), conv(1, strides=(2, 2))], ["conv2d"]),
        ([conv(3, dilation=2), conv(1)], ["conv2d"]),
        ([conv(3, results=6), conv(1, results=6, bias=True)], ["conv2d", "add"]),
    ],
)
@pytest.mark.examples(2)
def test_branches_are_merged(branches: list[Branch], left: list[str]) -> None:
    assert_rewritten(join_branches, sum_of(*branches), X, left=left, rtol=1e-4, atol=1e-4)


def test_data_may_be_bound_to_another_variable() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        return relax.op.add(conv(3)(x), conv(1)(builder.emit(x)))

    assert_rewritten(join_branches, module_of(build, X.shape), X, left=["conv2d"], rtol=1e-4, atol=1e-4)


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    "branches",
    [
        pytest.param([conv(3), conv(3, dilation=2)], id="taps on different grids"),
        pytest.param([conv(1), conv(3, dilation=3), conv(3)], id="the last on another grid"),
        pytest.param([conv(3), conv(3, groups=2)], id="other groups"),
        pytest.param([identity, identity], id="no convolution"),
        pytest.param([conv(3), relax.op.nn.relu], id="other data"),
        pytest.param([conv(3), lambda x: conv(1)(relax.op.nn.relu(x))], id="convolutions of other data"),
    ],
)
def test_incompatible_branches_are_unchanged(branches: list[Branch]) -> None:
    after = assert_rewritten(join_branches, sum_of(*branches), X, rtol=1e-4, atol=1e-4)
    assert operators(after).count("add") >= 1


def cross_kernels(x: ir.Expr) -> ir.Expr:
    """Return two convolutions whose merged kernel would be larger than both."""
    row, column = conv2d(x, 1, 3, 4, 4, padding=(0, 1, 0, 1)), conv2d(x, 3, 1, 4, 4, padding=(1, 0, 1, 0))
    return relax.op.add(row, column)


def read_twice(x: ir.Expr) -> ir.Expr:
    first = conv(3)(x)
    return relax.op.maximum(relax.op.add(first, conv(1)(x)), first)


@pytest.mark.parametrize("build", [cross_kernels, read_twice])
def test_branches_are_unchanged_if_merging_adds_work(build: Branch) -> None:
    module = network(build, X.shape)
    assert operators(join_branches(module)) == operators(module)


@pytest.mark.guard
@settings(max_examples=examples(25), deadline=None)
@given(
    kernels=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=3),
    befores=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=3, max_size=3),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    outputs=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_kernels_with_any_offsets_are_merged_correctly(
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
        return lambda x: conv2d(x, *kernels[at], 4, 4, seed=at, strides=strides, padding=padding, dilation=dilation)

    branches = sum_of(*map(convolution, range(len(kernels))))
    assert_rewritten(join_branches, branches, random_array(1, *size, 4), rtol=1e-4, atol=1e-4)
