"""Comparison of a build with a reference that amplifies rounding errors, by their mean outputs on many nearby inputs.

A network that quantizes its activations rounds each of them up or down. One unit in the last place of a sigmoid may
flip such a decision, and thus further decisions in later layers. On many inputs, the outputs of two correct
implementations then differ by as much as the outputs of one implementation change under rounding errors of the inputs.
On other nearby inputs, other decisions flip. The differences between correct implementations are therefore random, and
their mean over many inputs is small, whereas noise in a layer's weights shifts all outputs in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.evaluate.comparison import compare_outputs
from anole.evaluate.engines import Arrays, Engine

MAX_CHANCE_ERROR = 3e-3
"""Max difference of float32 means that may be attributed to chance: otherwise noise in weights would go undetected."""

MAX_ERROR_RATIO = 3.0
"""Max distance of a build from the reference, relative to the change of the reference's outputs on perturbed inputs."""

_MAX_DEVIATIONS = 3.0
"""Max difference between the means of two correct implementations, in standard deviations."""

_MIN_DRAWS, _MAX_DRAWS = 32, 4096
_MAX_S = 300.0
"""Approximate limit of the total time; it may reduce the number of draws."""

_RELATIVE_NOISE = 1e-3
"""The relative noise of nearby inputs: enough that some of them are rounded to other 8-bit values."""

_MAX_ULPS = 4
"""Max perturbation of an input, in units in the last place."""


@dataclass(frozen=True)
class MeanComparison:
    """The distances of a build from a reference on nearby inputs; see the same fields of `Evaluation`."""

    reference_sensitivity: float
    nearby_error: float
    averaged_error: float
    averaged_draws: int


def chance(nearby_error: float, draws: int) -> float:
    """Return the largest error of means that may be due to chance, if single outputs differ by `nearby_error`."""
    return _MAX_DEVIATIONS * nearby_error / sqrt(draws)


def compare_means(
    build: Engine, reference: Engine, samples: Sequence[Arrays], largest_chance: float = MAX_CHANCE_ERROR
) -> MeanComparison:
    """Compare a build with a reference on nearby inputs.

    Take enough draws to reduce the error due to chance to `largest_chance`, within limits of time and number. If the
    sensitivity of the reference does not explain its distance from the build, take few. Integer inputs do not change.
    """
    began_s, build_mean, reference_mean = time.monotonic(), _Mean(build), _Mean(reference)
    build_squares, reference_squares = [], []
    for draw in range(_MIN_DRAWS):
        inputs = _nearby_inputs(samples, draw)
        outputs, expected = build_mean.add(inputs), reference_mean.add(inputs)
        build_squares.append(compare_outputs(outputs, expected).error ** 2)
        perturbed_outputs = reference.compute_each([perturb(values, draw) for values in inputs])
        reference_squares.append(compare_outputs(perturbed_outputs, expected).error ** 2)
    sensitivity, nearby_error = (sqrt(sum(values) / len(values)) for values in (reference_squares, build_squares))
    if nearby_error <= MAX_ERROR_RATIO * sensitivity:
        per_draw_s = (time.monotonic() - began_s) / _MIN_DRAWS
        n_draws = ceil(min((_MAX_DEVIATIONS * nearby_error / largest_chance) ** 2, _MAX_DRAWS))
        for draw in range(_MIN_DRAWS, min(n_draws, int(_MAX_S / max(per_draw_s, 1e-9)))):
            inputs = _nearby_inputs(samples, draw)
            build_mean.add(inputs)
            reference_mean.add(inputs)
    averaged_error = compare_outputs(build_mean.outputs(), reference_mean.outputs()).error
    return MeanComparison(sensitivity, nearby_error, averaged_error, build_mean.draws)


class _Mean:
    """The mean of an engine's outputs over draws."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.draws = engine, 0
        self._sums: list[Arrays] = []

    def add(self, inputs: Sequence[Arrays]) -> list[Arrays]:
        """Compute a draw's outputs, add them, and return them."""
        outputs = self._engine.compute_each(inputs)
        doubles = [[array.astype(np.float64) for array in arrays] for arrays in outputs]
        pairs = zip(self._sums or doubles, doubles, strict=True)
        self._sums = [list(map(np.add, *pair)) for pair in pairs] if self.draws else doubles
        self.draws += 1
        return outputs

    def outputs(self) -> list[Arrays]:
        """Return the mean outputs for each sample."""
        return [[total / self.draws for total in totals] for totals in self._sums]


def perturb(inputs: Arrays, seed: int) -> Arrays:
    """Change each floating-point value by a few random units in the last place."""
    rng = np.random.default_rng(seed)
    return [
        np.asarray(x + rng.integers(-_MAX_ULPS, _MAX_ULPS + 1, x.shape) * np.spacing(np.abs(x)), x.dtype)
        if x.dtype.kind == "f"
        else x
        for x in inputs
    ]


def _nearby_inputs(samples: Sequence[Arrays], draw: int) -> list[Arrays]:
    """Add relative noise to floating-point inputs."""
    rng = np.random.default_rng(draw)

    def add_noise(array: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(array * (1 + _RELATIVE_NOISE * rng.standard_normal(array.shape)), array.dtype)

    return [[add_noise(array) if array.dtype.kind == "f" else array for array in inputs] for inputs in samples]
