"""Comparison on average with a reference that amplifies rounding, which still detects noise in the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anole.documents.evaluation import Evaluation, Latency
from anole.evaluate.correctness.check import _is_near_on_average
from anole.evaluate.correctness.perturbation import (
    MAX_CHANCE_ERROR,
    MAX_ERROR_RATIO,
    MeanComparison,
    chance,
    compare_means,
    perturb,
)
from anole.evaluate.engines import Engine

RNG = np.random.default_rng(0)
FIRST, SECOND = RNG.standard_normal((40, 32), np.float32), RNG.standard_normal((32, 16), np.float32)
SAMPLES = [[RNG.standard_normal((2, 40), np.float32)] for _ in range(3)]

Function = Callable[[NDArray[Any]], NDArray[Any]]


def engine(function: Function) -> Engine:
    now: list[NDArray[Any]] = []

    def give(inputs: Sequence[NDArray[Any]]) -> None:
        now[:] = inputs

    give(SAMPLES[0])
    return Engine("test", lambda: function(now[0]), lambda found: [found], give)


def quantized_network(levels: int, noise: float = 0.0, unit: float = 0.0) -> Function:
    """Return a network that quantizes its first layer's outputs.

    Args:
        levels: number of quantization levels; fewer levels increase the effect of each decision.
        noise: the relative noise of the last layer's weights.
        unit: the relative error of the first layer's outputs, as from a different order of sums.
    """
    noisy = SECOND * (1 + noise * np.random.default_rng(1).standard_normal(SECOND.shape)).astype(np.float32)

    def network(data: NDArray[Any]) -> NDArray[Any]:
        hidden = data @ FIRST * np.float32(1 + unit)
        # The outputs depend on the last bits of the hidden values, as after many quantized layers.
        position = np.sin(1e6 * hidden.astype(np.float64))
        return np.asarray((np.tanh(hidden) + position / levels) @ noisy, np.float32)

    return network


def is_near(found: MeanComparison) -> bool:
    """Return the decision of `anole.evaluate.correctness.check`."""
    compared = Latency("test", 1.0, 1.0, 1.0, relative_error=found.nearby_error)
    evaluation = Evaluation("net", "2026-01-01T00:00:00Z", 1, {}, {}, 0.0, (compared,), **vars(found))
    return _is_near_on_average(evaluation, MAX_CHANCE_ERROR)


def test_a_correct_build_of_a_sensitive_network_is_near_on_average() -> None:
    found = compare_means(engine(quantized_network(50, unit=3e-7)), engine(quantized_network(50)), SAMPLES)
    assert found.reference_sensitivity > 5e-3 and found.nearby_error > 5e-3
    assert found.averaged_error < found.nearby_error / 5
    assert is_near(found)


@pytest.mark.parametrize("noise", [0.01, -0.01])
def test_noise_in_the_weights_of_a_sensitive_network_is_detected(noise: float) -> None:
    found = compare_means(engine(quantized_network(50, noise, 3e-7)), engine(quantized_network(50)), SAMPLES)
    # The reference's sensitivity would explain the difference.
    assert found.nearby_error < MAX_ERROR_RATIO * found.reference_sensitivity
    assert found.averaged_error > MAX_CHANCE_ERROR
    assert not is_near(found)


def test_an_insensitive_reference_explains_no_difference() -> None:
    found = compare_means(engine(quantized_network(10**9, 0.01)), engine(quantized_network(10**9)), SAMPLES)
    assert found.reference_sensitivity < 1e-6 and found.averaged_draws == 32
    assert not is_near(found)


def test_a_too_sensitive_reference_shows_nothing() -> None:
    found = compare_means(engine(quantized_network(1, unit=3e-7)), engine(quantized_network(1)), SAMPLES)
    assert chance(found.nearby_error, found.averaged_draws) > MAX_CHANCE_ERROR
    assert not is_near(found)


def test_only_floating_point_inputs_are_perturbed() -> None:
    data, integers = RNG.standard_normal(1000).astype(np.float32), np.arange(5)
    again, same = perturb([data, integers], 0)
    assert again.dtype == np.float32 and np.abs((again - data) / np.spacing(np.abs(data))).max() == 4
    np.testing.assert_array_equal(same, integers)
