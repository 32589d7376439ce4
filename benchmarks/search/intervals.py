"""Intervals of paired comparisons: two tuners on the same layers with the same seeds, resampled by layers and seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 1000
_LEVEL = 0.95

Rows = Sequence[Mapping[str, str]]
Figure = Callable[[Mapping[str, str]], float]
"""Computes a figure from a line."""


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval.

    Attributes:
        value: the mean.
        low, high: the interval.
        n: number of pairs.
    """

    value: float
    low: float
    high: float
    n: int


def ratio(rows: Rows, over: str, under: str, column: str | Figure) -> Estimate | None:
    """Returns the geometric mean of a figure of one variant over that of another; None without pairs."""
    return mean(log_ratios(rows, over, under, column), np.exp)


def log_ratios(
    rows: Rows, over: str, under: str, column: str | Figure, *, variant: str = "variant", place: str = "layer"
) -> dict[tuple[str, str], float]:
    """Returns the logarithms of a figure of one variant over that of another, by place and seed.

    Args:
        rows: lines of an experiment.
        over: the variant whose figure is divided.
        under: the variant by whose figure it is divided.
        column: the figure's column, or what computes it from a line; a pair counts if both are positive numbers.
        variant: the column of the variants.
        place: the column of the places.
    """
    read = column if callable(column) else lambda row: float(row[column] or "nan")
    found: dict[str, dict[tuple[str, str], float]] = {over: {}, under: {}}
    for row in rows:
        if row[variant] in found:
            found[row[variant]][row[place], row.get("seed", "")] = read(row)
    common = [key for key in found[over] if key in found[under]]
    return {key: float(np.log(found[over][key] / found[under][key])) for key in common}


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
    return Estimate(middle, low, high, sum(map(len, groups)))
