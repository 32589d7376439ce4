"""Sums and products with constants are merged, and compute what they did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir, relax

from anole.extract.passes.merge_affine import merge_affine

from .building import drawn, module_of, operators, run

X = drawn(2, 5, 6, 4)


def const(*shape: int, seed: int = 1) -> ir.Expr:
    return relax.const(np.abs(drawn(*shape, seed=seed)) + 0.5)


def convolved(builder: relax.BlockBuilder, x: ir.Expr, groups: int = 1) -> ir.Expr:
    weight = relax.const(drawn(3, 3, 4 // groups, 8))
    settings = {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_layout": "NHWC"}
    return builder.emit(relax.op.nn.conv2d(x, weight, groups=groups, **settings))


def normalised(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """A batch-norm behind a bias, as inference has it."""
    x = builder.emit(relax.op.add(x, const(1, 1, 1, 8)))
    x = builder.emit(relax.op.subtract(x, const(8, seed=2)))
    x = builder.emit(relax.op.divide(x, const(1, 1, 1, 8, seed=3)))
    x = builder.emit(relax.op.multiply(const(8, seed=4), x))
    return relax.op.add(x, const(1, 8, seed=5))


def after_a_convolution(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return normalised(builder, convolved(builder, x))


def after_groups(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return normalised(builder, convolved(builder, x, groups=2))


def after_a_product(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return normalised(builder, builder.emit(relax.op.matmul(x, const(4, 8))))


def after_an_activation(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return normalised(builder, builder.emit(relax.op.nn.relu(convolved(builder, x))))


def of_mean_zero(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """A batch-norm that was never trained, behind an activation."""
    x = builder.emit(relax.op.nn.relu(x))
    x = builder.emit(relax.op.subtract(x, relax.const(np.zeros((4,), np.float32))))
    x = builder.emit(relax.op.divide(x, const(1, 1, 1, 4, seed=3)))
    x = builder.emit(relax.op.multiply(x, const(4, seed=4)))
    return relax.op.add(x, const(1, 4, seed=5))


def read_twice(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """The convolution's result is needed as it is, too."""
    first = convolved(builder, x)
    scaled = builder.emit(relax.op.multiply(builder.emit(relax.op.add(first, const(8))), const(8)))
    return relax.op.maximum(scaled, first)


def of_each_pixel(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return relax.op.multiply(convolved(builder, x), const(3, 4, 1))


def hard(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """A hard swish, whose argument is read twice."""
    x = builder.emit(relax.op.add(convolved(builder, x), const(8)))
    gate = builder.emit(relax.op.clip(builder.emit(relax.op.add(x, relax.const(3.0))), 0, 6))
    return relax.op.divide(builder.emit(relax.op.multiply(x, gate)), relax.const(6.0))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (after_a_convolution, ["conv2d", "add"]),
        (after_groups, ["conv2d", "add"]),
        (after_a_product, ["matmul", "add"]),
        (after_an_activation, ["conv2d", "relu", "multiply", "add"]),
        (of_mean_zero, ["relu", "multiply", "add"]),
        (read_twice, ["conv2d", "multiply", "add", "maximum"]),
        (of_each_pixel, ["conv2d", "multiply"]),
        (hard, ["conv2d", "add", "add", "clip", "multiply", "multiply"]),
    ],
)
@pytest.mark.examples(2)
def test_what_is_merged_computes_the_same(build: Any, expected: list[str]) -> None:
    before = module_of(build, X.shape)
    after = merge_affine(before)
    assert operators(after) == expected
    np.testing.assert_allclose(run(after, X), run(before, X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "build",
    [
        lambda _, x: relax.op.subtract(relax.const(1.0), x),
        lambda _, x: relax.op.divide(relax.const(1.0), x),
        lambda _, x: relax.op.add(x, x),
        lambda builder, x: relax.op.add(builder.emit(relax.op.strided_slice(x, [0], [0], [1])), const(2, 5, 6, 4)),
        lambda _, x: relax.op.divide(x, relax.const(0.0)),
    ],
    ids=["constant left", "reciprocal", "no constant", "spreads", "infinite"],
)
def test_what_is_no_product_or_sum_of_the_whole_stays(build: Any) -> None:
    module = module_of(build, X.shape)
    assert operators(merge_affine(module)) == operators(module)


def rounded(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """The last bit of the quotient may decide how it is rounded."""
    return relax.op.round(builder.emit(relax.op.divide(x, const(1, 1, 1, 4))))


def single(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    return relax.op.divide(builder.emit(relax.op.max(x)), const(1))


@pytest.mark.parametrize("build", [rounded, single])
def test_divisions_whose_last_bit_decides_or_that_save_nothing_stay(build: Any) -> None:
    assert "divide" in operators(merge_affine(module_of(build, X.shape)))
