"""1-d and 3-d convolutions as conv2d: results are preserved, without conversions between layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir, relax
from tvm.relax.op import nn

from anole.extract.passes.as_conv2d import as_conv2d

from .building import assert_rewritten, calls, constant, network, operators, random_array

X = random_array(2, 4, 21)
VOLUME = (4, 7, 9, 8)


def stack(x: ir.Expr) -> ir.Expr:
    """Return convolutions with a bias, an activation and a residual in between."""
    first = nn.conv1d(x, constant(6, 2, 3), strides=2, padding=(1, 2), groups=2)
    biased = relax.op.add(first, constant(1, 6, 1))
    second = nn.conv1d(nn.gelu(biased), constant(6, 6, 3), dilation=2, padding=2)
    return relax.op.clip(relax.op.add(second, biased), -1.0, 1.0)


def pool(x: ir.Expr) -> ir.Expr:
    largest = nn.max_pool1d(nn.conv1d(x, constant(6, 4, 3)), 3, 2, 1)
    mean = nn.avg_pool1d(largest, 2, 2, ceil_mode=True, count_include_pad=False)
    return nn.conv1d(mean, constant(5, 6, 1))


def imported_pool(x: ir.Expr) -> ir.Expr:
    high = relax.op.expand_dims(nn.conv1d(x, constant(6, 4, 3)), -2)
    largest = nn.max_pool2d(high, (1, 2), (1, 2))
    return nn.conv1d(relax.op.squeeze(largest, [-2]), constant(5, 6, 1))


def join(x: ir.Expr) -> ir.Expr:
    first = nn.conv1d(x, constant(4, 4, 1))
    both = relax.op.concat([nn.conv1d(first, constant(n, 4, 1)) for n in (2, 3)], 1)
    return nn.conv1d_transpose(both, constant(5, 4, 4), strides=2, padding=1, output_padding=1)


def norm(x: ir.Expr) -> ir.Expr:
    statistics = [relax.const(np.abs(random_array(6, seed=seed)) + 0.5) for seed in range(4)]
    return relax.TupleGetItem(nn.batch_norm(x, *statistics, axis=1, training=False), 0)


def normalize(x: ir.Expr) -> ir.Expr:
    return nn.conv1d(norm(nn.conv1d(x, constant(6, 4, 3))), constant(5, 6, 1))


def causal(x: ir.Expr) -> ir.Expr:
    """Return convolutions with padding before the data and cropping after it."""
    cut = nn.relu(relax.op.strided_slice(nn.conv1d(x, constant(6, 4, 3), padding=2), [-1], [0], [21]))
    return nn.conv1d(nn.pad(cut, [0, 0, 0, 0, 4, 0]), constant(5, 6, 3), dilation=2)


def scale_by_position(x: ir.Expr) -> ir.Expr:
    """Multiply by a constant that is broadcast along batch and channels."""
    return relax.op.multiply(nn.conv1d(x, constant(6, 4, 3)), constant(19))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (scale_by_position, ["conv2d", "multiply"]),
        (causal, ["conv2d", "strided_slice", "relu", "pad", "conv2d"]),
        (stack, ["conv2d", "add", "gelu", "conv2d", "add", "clip"]),
        (pool, ["conv2d", "max_pool2d", "avg_pool2d", "conv2d"]),
        (imported_pool, ["conv2d", "max_pool2d", "conv2d"]),
        (join, ["conv2d", "conv2d", "conv2d", "concat", "conv2d_transpose"]),
        (normalize, ["conv2d", "batch_norm", "conv2d"]),
    ],
)
@pytest.mark.examples(1)
def test_1d_networks_are_rewritten(build: Any, expected: list[str]) -> None:
    assert_rewritten(as_conv2d, build, X, left=["expand_dims", *expected, "squeeze"])


def volume(x: ir.Expr) -> ir.Expr:
    """Return 3-d convolutions with a bias, an activation, a residual and a pool."""
    first = nn.conv3d(x, constant(6, 4, 3, 3, 2), strides=(1, 2, 1), padding=(1, 0, 2, 1, 1, 0))
    biased = relax.op.add(first, constant(1, 6, 1, 1, 1))
    second = nn.conv3d(nn.relu(biased), constant(6, 6, 3, 1, 1), dilation=(2, 1, 1), padding=(2, 0, 0))
    return nn.max_pool3d(relax.op.add(second, biased), (2, 3, 2), (2, 1, 2), (0, 1, 1), ceil_mode=False)


def crop_volume(x: ir.Expr) -> ir.Expr:
    made = nn.conv3d(x, constant(6, 4, 3, 3, 3), padding=1)
    mean = nn.avg_pool3d(made, (2, 3, 2), (1, 2, 2), (0, 1, 0), count_include_pad=False)
    return nn.relu(relax.op.strided_slice(nn.pad(mean, [0, 0, 0, 1, 0, 0, 1, 0, 0, 2]), [1, 3], [2, 1], [7, 5]))


def grouped_volume(x: ir.Expr) -> ir.Expr:
    first = nn.conv3d(x, constant(6, 2, 2, 1, 3), strides=(2, 1, 1), groups=2)
    return nn.conv3d(first, constant(3, 6, 1, 1, 1))


def normalize_volume(x: ir.Expr) -> ir.Expr:
    return nn.relu(norm(nn.conv3d(x, constant(6, 4, 1, 3, 3))))


@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.guard)])
@pytest.mark.parametrize("build", [volume, crop_volume, grouped_volume, normalize_volume])
@pytest.mark.examples(2)
def test_3d_networks_are_rewritten(build: Any, batch: int) -> None:
    after = assert_rewritten(as_conv2d, build, random_array(batch, *VOLUME), rtol=1e-4, atol=1e-4)
    assert not {"conv3d", "max_pool3d", "avg_pool3d"}.intersection(operators(after))
    found = zip(operators(after), calls(after), strict=True)
    in_between = [call for name, call in found if name in ("add", "relu", "conv2d", "max_pool2d", "avg_pool2d")]
    assert in_between and all(len(call.ty.shape) == 4 for call in in_between)


@pytest.mark.parametrize("settings", [{"padding": 1}, {"ceil_mode": True}])
def test_pools_that_read_beyond_the_depth_are_unchanged(settings: dict[str, Any]) -> None:
    def build(x: ir.Expr) -> ir.Expr:
        return nn.max_pool3d(nn.conv3d(x, constant(6, 4, 1, 1, 1)), 2, 2, **settings)

    assert operators(assert_rewritten(as_conv2d, build, random_array(1, *VOLUME)))[-1] == "max_pool3d"


def test_operators_without_a_preceding_convolution_are_unchanged() -> None:
    module = network(lambda x: nn.relu(relax.op.add(x, constant(1, 4, 1))), X.shape)
    assert operators(as_conv2d(module)) == ["add", "relu"]


def test_unsupported_operators_read_converted_data() -> None:
    left = ["expand_dims", "conv2d", "squeeze", "softmax"]
    assert_rewritten(as_conv2d, lambda x: nn.softmax(nn.conv1d(x, constant(6, 4, 3)), 2), X, left=left, atol=1e-6)
