"""Networks of one and of three dimensions compute as images what they did, and nothing is between their layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir, relax

from anole.extract.passes.as_conv2d import as_conv2d

from .building import calls, drawn, module_of, operators, run

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


def causal(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """What is padded in front, and cut off behind."""
    made = builder.emit(relax.op.nn.conv1d(x, weight(6, 4, 3), padding=2))
    cut = builder.emit(relax.op.nn.relu(builder.emit(relax.op.strided_slice(made, [-1], [0], [21]))))
    padded = builder.emit(relax.op.nn.pad(cut, [0, 0, 0, 0, 4, 0]))
    return relax.op.nn.conv1d(padded, weight(5, 6, 3), dilation=2)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (causal, ["conv2d", "strided_slice", "relu", "pad", "conv2d"]),
        (stack, ["conv2d", "add", "gelu", "conv2d", "add", "clip"]),
        (pooled, ["conv2d", "max_pool2d", "avg_pool2d", "conv2d"]),
        (imported_pool, ["conv2d", "max_pool2d", "conv2d"]),
        (joined, ["conv2d", "conv2d", "conv2d", "concat", "conv2d_transpose"]),
        (normalised, ["conv2d", "batch_norm", "conv2d"]),
    ],
)
@pytest.mark.examples(1)
def test_what_is_widened_computes_the_same(build: Any, expected: list[str]) -> None:
    before = module_of(build, X.shape)
    after = as_conv2d(before)
    assert operators(after) == ["expand_dims", *expected, "squeeze"]
    if build is normalised:
        before, after = (relax.transform.DecomposeOpsForInference()(module) for module in (before, after))
    np.testing.assert_allclose(run(after, X), run(before, X), rtol=1e-5, atol=1e-5)


def volume(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    """Volumes with a bias, an activation, a residual and a pool."""
    first = builder.emit(relax.op.nn.conv3d(x, weight(6, 4, 3, 3, 2), strides=(1, 2, 1), padding=(1, 0, 2, 1, 1, 0)))
    biased = builder.emit(relax.op.add(first, weight(1, 6, 1, 1, 1)))
    active = builder.emit(relax.op.nn.relu(biased))
    second = builder.emit(relax.op.nn.conv3d(active, weight(6, 6, 3, 1, 1), dilation=(2, 1, 1), padding=(2, 0, 0)))
    total = builder.emit(relax.op.add(second, biased))
    return relax.op.nn.max_pool3d(total, (2, 3, 2), (2, 1, 2), (0, 1, 1), ceil_mode=False)


def cropped_volume(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    made = builder.emit(relax.op.nn.conv3d(x, weight(6, 4, 3, 3, 3), padding=1))
    mean = builder.emit(relax.op.nn.avg_pool3d(made, (2, 3, 2), (1, 2, 2), (0, 1, 0), count_include_pad=False))
    padded = builder.emit(relax.op.nn.pad(mean, [0, 0, 0, 1, 0, 0, 1, 0, 0, 2]))
    return relax.op.nn.relu(builder.emit(relax.op.strided_slice(padded, [1, 3], [2, 1], [7, 5])))


def grouped_volume(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    first = builder.emit(relax.op.nn.conv3d(x, weight(6, 2, 2, 1, 3), strides=(2, 1, 1), groups=2))
    return relax.op.nn.conv3d(first, weight(3, 6, 1, 1, 1))


def normalised_volume(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
    made = builder.emit(relax.op.nn.conv3d(x, weight(6, 4, 1, 3, 3)))
    statistics = [relax.const(np.abs(drawn(6, seed=seed)) + 0.5) for seed in range(4)]
    norm = builder.emit(relax.op.nn.batch_norm(made, *statistics, axis=1, training=False))
    return relax.op.nn.relu(builder.emit(relax.TupleGetItem(norm, 0)))


@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.guard)])
@pytest.mark.parametrize("build", [volume, cropped_volume, grouped_volume, normalised_volume])
@pytest.mark.examples(2)
def test_volumes_are_images_of_their_slices(build: Any, batch: int) -> None:
    data = drawn(batch, 4, 7, 9, 8)
    before = module_of(build, data.shape)
    after = as_conv2d(before)
    found = [(call.op.name.rpartition(".")[2], call) for call in calls(after)]
    assert not [name for name, _ in found if name in ("conv3d", "max_pool3d", "avg_pool3d")]
    in_between = [call for name, call in found if name in ("add", "relu", "conv2d", "max_pool2d", "avg_pool2d")]
    assert in_between and all(len(call.ty.shape) == 4 for call in in_between)
    if build is normalised_volume:
        before, after = (relax.transform.DecomposeOpsForInference()(module) for module in (before, after))
    np.testing.assert_allclose(run(after, data), run(before, data), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("settings", [{"padding": 1}, {"ceil_mode": True}])
def test_pools_that_reach_beyond_the_depth_stay(settings: dict[str, Any]) -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        made = builder.emit(relax.op.nn.conv3d(x, weight(6, 4, 1, 1, 1)))
        return relax.op.nn.max_pool3d(made, 2, 2, **settings)

    data = drawn(1, 4, 7, 9, 8)
    before = module_of(build, data.shape)
    assert operators(as_conv2d(before))[-1] == "max_pool3d"
    np.testing.assert_allclose(run(as_conv2d(before), data), run(before, data), rtol=1e-5, atol=1e-5)


def test_what_follows_no_convolution_stays() -> None:
    module = module_of(lambda builder, x: relax.op.nn.relu(builder.emit(relax.op.add(x, weight(1, 4, 1)))), X.shape)
    assert operators(as_conv2d(module)) == ["add", "relu"]


def test_who_cannot_read_two_dimensions_reads_one() -> None:
    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        made = builder.emit(relax.op.nn.conv1d(x, weight(6, 4, 3)))
        return relax.op.nn.softmax(made, 2)

    before = module_of(build, X.shape)
    assert operators(as_conv2d(before)) == ["expand_dims", "conv2d", "squeeze", "softmax"]
    np.testing.assert_allclose(run(as_conv2d(before), X), run(before, X), rtol=1e-5, atol=1e-6)
