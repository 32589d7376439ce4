"""Intervals of paired comparisons: two tuners on the same layers with the same seeds, resampled by layers and seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 1000
_LEVEL = 0.95

_FEWEST_PLACES, _FEWEST_PAIRS = 3, 5
"""With fewer, resampling tells next to nothing of what else might have been: of one place, an interval is a point."""

Rows = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval.

    Attributes:
        value: the mean.
        low, high: the interval.
        n: number of pairs.
        places: number of layers or networks that the pairs are from.
    """

    value: float
    low: float
    high: float
    n: int
    places: int

    def verdict(self, claimed_above: float) -> str:
        """Returns whether a claim holds that the value is above a number; that takes some places and pairs."""
        if self.places < _FEWEST_PLACES or self.n < _FEWEST_PAIRS:
            return "cannot be told"
        if self.low > claimed_above:
            return "holds"
        return "does not hold" if self.high <= claimed_above else "cannot be told"


def ratio(
    rows: Rows,
    over: str,
    under: str,
    column: str | Callable[[Mapping[str, str]], float],
    *,
    variant: str = "variant",
    place: str = "layer",
) -> Estimate | None:
    """Returns the geometric mean of a figure of one variant over that of another; None without pairs.

    Args:
        rows: lines of an experiment.
        over: the variant whose figure is divided.
        under: the variant by whose figure it is divided.
        column: the figure's column, or what computes it from a line; a pair counts if both are positive numbers.
        variant: the column of the variants.
        place: the column of what is resampled as a whole.
    """
    read = column if callable(column) else lambda row: float(row[column] or "nan")
    found: dict[str, dict[tuple[str, str], float]] = {over: {}, under: {}}
    for row in rows:
        if row[variant] in found:
            found[row[variant]][row[place], row.get("seed", "")] = read(row)
    common = [key for key in found[over] if key in found[under]]
    return mean(
        {(name, seed): np.log(found[over][name, seed] / found[under][name, seed]) for name, seed in common}, np.exp
    )


def mean(
    values: Mapping[tuple[str, str], float], undo: Callable[[NDArray[np.float64]], NDArray[np.float64]] = np.asarray
) -> Estimate | None:
    """Returns the mean of values with its bootstrap interval; None without values.

    Places are drawn with replacement, and then seeds of each drawn place: what differs between layers is no chance
    that more seeds would remove (Efron and Tibshirani 1993, chapter 8).

    Args:
        values: by place and seed; what is no finite number does not count.
        undo: the inverse of the scale on which the mean is taken.
    """
    by_place: dict[str, list[float]] = {}
    for (name, _), value in values.items():
        if np.isfinite(value):
            by_place.setdefault(name, []).append(value)
    if not by_place:
        return None
    groups = [np.array(group) for group in by_place.values()]
    rng = np.random.default_rng(0)
    # For every group and every place in a drawn sample, the mean of the group's seeds drawn anew.
    shape = (_RESAMPLES, len(groups))
    means = np.array([rng.choice(group, (*shape, len(group))).mean(axis=2) for group in groups])
    drawn = rng.integers(len(groups), size=shape)
    draws = np.take_along_axis(means, drawn[None], axis=0)[0].mean(axis=1)
    low, high = np.quantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    # The mean of the groups' means, so that a place with more seeds counts no more than the others.
    middle = float(np.mean([group.mean() for group in groups]))
    middle, low, high = undo(np.array([middle, low, high])).tolist()
    return Estimate(middle, low, high, sum(map(len, groups)), len(groups))
