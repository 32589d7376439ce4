"""Networks of one dimension compute in two what they did, and nothing is between their layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir, relax

from anole.extract.widen import widen

from .building import drawn, module_of, operators, run

X = drawn(2, 4, 21)


def weight(*shape: int) -> ir.Expr:
    return relax.const(drawn(*shape, seed=1))


def stack(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """Convolutions with a bias, an activation, and a residual between them."""
    first = builder.emit(relax.op.nn.conv1d(x, weight(6, 2, 3), strides=2, padding=(1, 2), groups=2))
    biased = builder.emit(relax.op.add(first, weight(1, 6, 1)))
    active = builder.emit(relax.op.nn.gelu(biased))
    second = builder.emit(relax.op.nn.conv1d(active, weight(6, 6, 3), dilation=2, padding=2))
    return relax.op.clip(builder.emit(relax.op.add(second, biased)), -1.0, 1.0)


def pooled(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    made = builder.emit(relax.op.nn.conv1d(x, weight(6, 4, 3)))
    largest = builder.emit(relax.op.nn.max_pool1d(made, 3, 2, 1))
    mean = builder.emit(relax.op.nn.avg_pool1d(largest, 2, 2, ceil_mode=True, count_include_pad=False))
    return relax.op.nn.conv1d(mean, weight(5, 6, 1))


def imported_pool(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """A pool as torch's import has it."""
    made = builder.emit(relax.op.nn.conv1d(x, weight(6, 4, 3)))
    high = builder.emit(relax.op.expand_dims(made, -2))
    largest = builder.emit(relax.op.nn.max_pool2d(high, (1, 2), (1, 2)))
    return relax.op.nn.conv1d(builder.emit(relax.op.squeeze(largest, [-2])), weight(5, 6, 1))


def joined(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    first = builder.emit(relax.op.nn.conv1d(x, weight(4, 4, 1)))
    ways = [builder.emit(relax.op.nn.conv1d(first, weight(n, 4, 1))) for n in (2, 3)]
    whole = builder.emit(relax.op.concat(ways, 1))
    return relax.op.nn.conv1d_transpose(whole, weight(5, 4, 4), strides=2, padding=1, output_padding=1)


def normalised(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    made = builder.emit(relax.op.nn.conv1d(x, weight(6, 4, 3)))
    statistics = [relax.const(np.abs(drawn(6, seed=seed)) + 0.5) for seed in range(4)]
    norm = builder.emit(relax.op.nn.batch_norm(made, *statistics, axis=1, training=False))
    return relax.op.nn.conv1d(builder.emit(relax.TupleGetItem(norm, 0)), weight(5, 6, 1))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (stack, ["conv2d", "add", "gelu", "conv2d", "add", "clip"]),
        (pooled, ["conv2d", "max_pool2d", "avg_pool2d", "conv2d"]),
        (imported_pool, ["conv2d", "max_pool2d", "conv2d"]),
        (joined, ["conv2d", "conv2d", "conv2d", "concat", "conv2d_transpose"]),
        (normalised, ["conv2d", "batch_norm", "conv2d"]),
    ],
)
def test_what_is_widened_computes_the_same(build: Any, expected: list[str]) -> None:
    before = module_of(build, X.shape)
    after = widen(before)
    assert operators(after) == ["expand_dims", *expected, "squeeze"]
    if build is normalised:
        before, after = (relax.transform.DecomposeOpsForInference()(module) for module in (before, after))
    np.testing.assert_allclose(run(after, X), run(before, X), rtol=1e-5, atol=1e-5)


def test_what_follows_no_convolution_stays() -> None:
    module = module_of(lambda builder, x: relax.op.nn.relu(builder.emit(relax.op.add(x, weight(1, 4, 1)))), X.shape)
    assert operators(widen(module)) == ["add", "relu"]


def test_who_cannot_read_two_dimensions_reads_one() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        made = builder.emit(relax.op.nn.conv1d(x, weight(6, 4, 3)))
        return relax.op.nn.softmax(made, 2)

    before = module_of(build, X.shape)
    assert operators(widen(before)) == ["expand_dims", "conv2d", "squeeze", "softmax"]
    np.testing.assert_allclose(run(widen(before), X), run(before, X), rtol=1e-5, atol=1e-6)
