"""Operators on the result of a convolution, along each axis: the internal NHWC layout must not be visible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from .test_operators import Network

pytestmark = pytest.mark.guard

SHAPES = [(2, 6, 5), (2, 6, 4, 5)]


@pytest.mark.parametrize("shape", SHAPES)
def test_operators_along_an_axis(tmp_path: Path, shape: Sequence[int]) -> None:
    net, result = convolve(shape)
    for axis, extent in enumerate(shape):
        weights = [net.weight(net.rng.standard_normal(shape[axis:])) for _ in range(2)]
        net.add("LayerNormalization", result, *weights, axis=axis)
        net.add("GatherElements", result, net.weight(net.rng.integers(0, extent, shape), "int64"), axis=axis)
        indices = net.weight(np.argsort(net.rng.random(shape), axis=axis), "int64")
        for reduction in ("none", "max"):
            updates = net.weight(net.rng.standard_normal(shape))
            net.add("ScatterElements", result, indices, updates, axis=axis, reduction=reduction)
        net.add("Slice", result, *(net.weight([number], "int64") for number in (-1, -100, axis, -1)))
        for operator in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "ArgMax", "Flatten"):
            net.add(operator, result, axis=axis)
        for operator in ("ReduceSum", "ReduceMax"):
            net.add(operator, result, net.weight([axis], "int64"), keepdims=0)
        net.add("CumSum", result, net.weight(axis, "int64"))
        net.add("Tile", result, net.weight([2 if at == axis else 1 for at in range(len(shape))], "int64"))
        net.add("Concat", result, net.weight(net.rng.standard_normal(shape)), result, axis=axis)
        net.add("Gather", result, net.weight([[0, 1], [1, 0]], "int64"), axis=axis)
        net.add("TopK", result, net.weight([2], "int64"), axis=axis, outputs=2)
        net.add("Unsqueeze", result, net.weight([axis], "int64"))
        net.add("MeanVarianceNormalization", result, axes=[axis])
    net.check(tmp_path)


@pytest.mark.parametrize("shape", SHAPES)
def test_operators_with_a_broadcast_constant(tmp_path: Path, shape: Sequence[int]) -> None:
    net, result = convolve(shape)
    for n_axes in range(len(shape) + 1):
        for every in (1, 2):
            own = [extent if at % every == 0 else 1 for at, extent in enumerate(shape[len(shape) - n_axes :])]
            other = net.weight(net.rng.uniform(0.2, 2, own))
            for operator in ("Sub", "Pow", "PRelu"):
                net.add(operator, result, other)
            net.add("Pow", other, result) if n_axes == 0 else net.add("Mul", other, result)
            net.add("Max", result, other, result)
            net.add("Sum", other, result, other)
            net.add("Less", result, other)
            net.add("Where", f"{len(net.nodes) - 1}_Less_0", other, result)
            net.add("Mod", result, other, fmod=1)
    net.check(tmp_path)


def convolve(shape: Sequence[int]) -> tuple[Network, str]:
    """Return a network with one convolution whose result has this shape, and the result's name."""
    net = Network()
    batch, channels, *extents = shape
    kernel = net.weight(net.rng.standard_normal((channels, 3, *(1 for _ in extents))))
    net.add("Conv", net.input(batch, 3, *extents), kernel)
    return net, "0_Conv_0"
