"""Compares a build with a reference that multiplies rounding, by the means of their outputs on many nearby inputs.

A network that quantizes what it has computed decides at each value between two neighbours. One unit in the last place
of a sigmoid may change a decision, which changes others behind it: the outputs of two right implementations then differ
on many inputs, and as much as those of one of them do on inputs that differ by rounding alone. On other inputs nearby,
other decisions change. So the differences of right implementations are random and their mean over many inputs is small,
while noise in a layer's weights changes all outputs alike.
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

LARGEST_CHANCE = 3e-3
"""The largest difference of means of float32 that may be called chance: beyond it, noise in weights is not found."""

MAX_ERROR_RATIO = 3.0
"""How many times as far from the reference a build may be as the reference is from itself, with inputs rounded anew."""

_DEVIATIONS = 3.0
"""How many standard deviations apart the means of two right implementations may be."""

_MIN_DRAWS, _MAX_DRAWS = 32, 4096
_MAX_S = 300.0
"""About how long the draws may take, at whose end there may be too few."""

_NEARBY = 1e-3
"""The relative noise of nearby inputs: enough to change how some of them are rounded to 8 bits."""

_UNITS = 4
"""The most units in the last place by which an input is rounded anew."""


@dataclass(frozen=True)
class MeansCompared:
    """How far a build is from a reference on nearby inputs; see the same fields of `Evaluation`."""

    reference_sensitivity: float
    nearby_error: float
    averaged_error: float
    averaged_draws: int


def chance(nearby_error: float, draws: int) -> float:
    """Return the largest error of means that may be chance, where single outputs differ at random by so much."""
    return _DEVIATIONS * nearby_error / sqrt(draws)


def compare_means(
    build: Engine, reference: Engine, samples: Sequence[Arrays], largest_chance: float = LARGEST_CHANCE
) -> MeansCompared:
    """Compare a build with a reference on nearby inputs.

    There are as many draws as it takes until chance explains no more than `largest_chance`, if that is possible within
    some time. Where a build is farther from the reference than the latter's sensitivity explains, there are only a few.
    Integers stay as they are.
    """
    began_s, mine, theirs = time.monotonic(), _Mean(build), _Mean(reference)
    squares, own_squares = [], []
    for draw in range(_MIN_DRAWS):
        inputs = _nearby(samples, draw)
        found, expected = mine.add(inputs), theirs.add(inputs)
        squares.append(compare_outputs(found, expected).error ** 2)
        again = reference.compute_each([perturbed(each, draw) for each in inputs])
        own_squares.append(compare_outputs(again, expected).error ** 2)
    sensitivity, nearby_error = (sqrt(sum(each) / len(each)) for each in (own_squares, squares))
    if nearby_error <= MAX_ERROR_RATIO * sensitivity:
        per_draw_s = (time.monotonic() - began_s) / _MIN_DRAWS
        needed = ceil(min((_DEVIATIONS * nearby_error / largest_chance) ** 2, _MAX_DRAWS))
        for draw in range(_MIN_DRAWS, min(needed, int(_MAX_S / max(per_draw_s, 1e-9)))):
            inputs = _nearby(samples, draw)
            mine.add(inputs)
            theirs.add(inputs)
    averaged_error = compare_outputs(mine.outputs(), theirs.outputs()).error
    return MeansCompared(sensitivity, nearby_error, averaged_error, mine.draws)


class _Mean:
    """The mean of an engine's outputs over draws."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.draws = engine, 0
        self._sums: list[Arrays] = []

    def add(self, inputs: Sequence[Arrays]) -> list[Arrays]:
        """Compute a draw's outputs, add them, and return them."""
        found = self._engine.compute_each(inputs)
        wide = [[array.astype(np.float64) for array in each] for each in found]
        pairs = zip(self._sums or wide, wide, strict=True)
        self._sums = [list(map(np.add, *pair)) for pair in pairs] if self.draws else wide
        self.draws += 1
        return found

    def outputs(self) -> list[Arrays]:
        """Return the mean outputs for each sample."""
        return [[total / self.draws for total in each] for each in self._sums]


def perturbed(inputs: Arrays, seed: int) -> Arrays:
    """Return inputs with each floating-point number changed by a few units in the last place, at random."""
    rng = np.random.default_rng(seed)
    return [
        np.asarray(array + rng.integers(-_UNITS, _UNITS + 1, array.shape) * np.spacing(np.abs(array)), array.dtype)
        if array.dtype.kind == "f"
        else array
        for array in inputs
    ]


def _nearby(samples: Sequence[Arrays], draw: int) -> list[Arrays]:
    """Return inputs with some relative noise."""
    rng = np.random.default_rng(draw)

    def noisy(array: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(array * (1 + _NEARBY * rng.standard_normal(array.shape)), array.dtype)

    return [[noisy(array) if array.dtype.kind == "f" else array for array in inputs] for inputs in samples]
