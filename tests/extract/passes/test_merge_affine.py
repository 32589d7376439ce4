"""Chains of additions and multiplications by constants are merged with equal results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir, relax

from anole.extract.passes.merge_affine import merge_affine

from .building import assert_rewritten, conv2d, network, operators, random_array

X = random_array(2, 5, 6, 4)


def const(*shape: int, seed: int = 1) -> ir.Expr:
    return relax.const(np.abs(random_array(*shape, seed=seed)) + 0.5)


def convolve(x: ir.Expr, groups: int = 1) -> ir.Expr:
    return conv2d(x, 3, 3, 4 // groups, 8, seed=0, groups=groups)


def normalize(x: ir.Expr) -> ir.Expr:
    """Return a batch norm after a bias, as in inference."""
    x = relax.op.add(x, const(1, 1, 1, 8))
    x = relax.op.subtract(x, const(8, seed=2))
    x = relax.op.divide(x, const(1, 1, 1, 8, seed=3))
    x = relax.op.multiply(const(8, seed=4), x)
    return relax.op.add(x, const(1, 8, seed=5))


def untrained_norm(x: ir.Expr) -> ir.Expr:
    """Return an untrained batch norm after an activation."""
    x = relax.op.subtract(relax.op.nn.relu(x), relax.const(np.zeros((4,), np.float32)))
    x = relax.op.divide(x, const(1, 1, 1, 4, seed=3))
    return relax.op.add(relax.op.multiply(x, const(4, seed=4)), const(1, 4, seed=5))


def read_twice(x: ir.Expr) -> ir.Expr:
    """Return a scaled convolution whose unscaled result is read, too."""
    first = convolve(x)
    return relax.op.maximum(relax.op.multiply(relax.op.add(first, const(8)), const(8)), first)


def hard_swish(x: ir.Expr) -> ir.Expr:
    """Return a hard swish, whose argument is read twice."""
    x = relax.op.add(convolve(x), const(8))
    gate = relax.op.clip(relax.op.add(x, relax.const(3.0)), 0, 6)
    return relax.op.divide(relax.op.multiply(x, gate), relax.const(6.0))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: normalize(convolve(x)), ["conv2d", "add"]),
        (lambda x: normalize(convolve(x, groups=2)), ["conv2d", "add"]),
        (lambda x: normalize(relax.op.matmul(x, const(4, 8))), ["matmul", "add"]),
        (lambda x: normalize(relax.op.nn.relu(convolve(x))), ["conv2d", "relu", "multiply", "add"]),
        (untrained_norm, ["relu", "multiply", "add"]),
        (read_twice, ["conv2d", "multiply", "add", "maximum"]),
        (lambda x: relax.op.multiply(convolve(x), const(3, 4, 1)), ["conv2d", "multiply"]),
        (hard_swish, ["conv2d", "add", "add", "clip", "multiply", "multiply"]),
    ],
)
@pytest.mark.examples(2)
def test_chains_are_merged(build: Any, expected: list[str]) -> None:
    assert_rewritten(merge_affine, build, X, left=expected, rtol=1e-4)


def round_quotient(x: ir.Expr) -> ir.Expr:
    """Return a rounded quotient, whose last bit may change the result."""
    return relax.op.round(relax.op.divide(x, const(1, 1, 1, 4)))


@pytest.mark.parametrize(
    "build",
    [
        lambda x: relax.op.subtract(relax.const(1.0), x),
        lambda x: relax.op.divide(relax.const(1.0), x),
        lambda x: relax.op.add(x, x),
        lambda x: relax.op.add(relax.op.strided_slice(x, [0], [0], [1]), const(2, 5, 6, 4)),
        lambda x: relax.op.divide(x, relax.const(0.0)),
        round_quotient,
        lambda x: relax.op.divide(relax.op.max(x), const(1)),
    ],
    ids=["constant left", "reciprocal", "no constant", "broadcast data", "infinite", "rounded", "scalar"],
)
def test_other_operations_are_unchanged(build: Any) -> None:
    module = network(build, X.shape)
    assert operators(merge_affine(module)) == operators(module)
