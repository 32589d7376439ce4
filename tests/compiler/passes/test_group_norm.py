"""A group norm becomes a scale and a shift for each channel, which fuse with the following operators."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import ir, relax

from anole.compiler.passes.group_norm import legalize_group_norm

from ...extract.passes.building import module_of, random_array, run
from .test_resize import kernels


def build_norm(shape: tuple[int, ...], groups: int, channel: int) -> tvm.IRModule:
    """Return a module with a group norm over all spatial axes, followed by a ReLU."""
    spatial = [axis for axis in range(1, len(shape)) if axis != channel]
    gamma, beta = (relax.const(random_array(shape[channel], seed=seed)) for seed in (1, 2))

    def build(builder: relax.BlockBuilder, x: ir.Expr) -> ir.Expr:
        found = relax.op.nn.group_norm(x, gamma, beta, groups, channel, spatial, 1e-5)
        return relax.op.nn.relu(builder.emit(found))

    return relax.transform.LegalizeOps({"relax.nn.group_norm": legalize_group_norm})(module_of(build, shape))


def compute_expected(data: NDArray[np.float32], groups: int, channel: int) -> NDArray[np.float64]:
    first = np.moveaxis(data.astype(np.float64), channel, 1)
    grouped = first.reshape(first.shape[0], groups, -1)
    mean, variance = grouped.mean(2, keepdims=True), grouped.var(2, keepdims=True)
    found = ((grouped - mean) / np.sqrt(variance + 1e-5)).reshape(first.shape)
    by_channel = (-1, *[1] * (first.ndim - 2))
    gamma, beta = (random_array(data.shape[channel], seed=seed).reshape(by_channel) for seed in (1, 2))
    return np.moveaxis(np.maximum(found * gamma + beta, 0), 1, channel)


CASES = [
    ((2, 7, 5, 12), 1, 3),
    ((2, 7, 5, 12), 4, 3),
    ((2, 7, 5, 12), 12, 3),
    ((2, 12, 7, 5), 1, 1),
    ((2, 12, 7, 5), 4, 1),
    ((2, 12, 9), 3, 1),
    ((2, 9, 12), 3, 2),
    ((1, 6, 3, 4, 5), 2, 1),
    ((1, 3, 4, 5, 6), 2, 4),
]


@pytest.mark.parametrize(("shape", "groups", "channel"), CASES)
@pytest.mark.examples(2)
def test_every_layout_is_correct_and_fuses_with_its_reader(shape: tuple[int, ...], groups: int, channel: int) -> None:
    module, data = build_norm(shape, groups, channel), random_array(*shape)
    assert kernels(module) == ["group_statistics", "fused_normalize_relu"]
    np.testing.assert_allclose(run(module, data), compute_expected(data, groups, channel), rtol=1e-5, atol=1e-5)


def test_a_large_mean_costs_no_accuracy() -> None:
    data = random_array(1, 20, 20, 8) + np.float32(1000)
    found = run(build_norm(data.shape, 1, 3), data)
    np.testing.assert_allclose(found, compute_expected(data, 1, 3), atol=1e-3)


def test_features_without_an_image_are_left_to_tvm() -> None:
    module, data = build_norm((3, 12), 4, 1), random_array(3, 12)
    assert kernels(module) == ["fused_group_norm_relu"]
    np.testing.assert_allclose(run(module, data), compute_expected(data, 4, 1), rtol=1e-4, atol=1e-5)
