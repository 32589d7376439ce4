"""Statistics of paired comparisons of tuners: Student's intervals, one-sided tests, equivalence, Holm's correction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from benchmarks.common.rows import Row

_LEVEL = 0.95
ALPHA = 0.05
"""The level of a verdict, after correction."""
MARGIN = 0.02
"""The relative difference below which two variants are equivalent."""
_MIN_BLOCKS, _MIN_PAIRS = 3, 5
"""With fewer layers or pairs, a spread is too uncertain for an interval."""

Rows = Sequence[Row]
Figure = Callable[[Row], float]
"""A function that computes a figure from a row."""
Logs = Mapping[tuple[str, str], float]
"""Logarithms of a number, by block (the unit of replication: a layer, or a family of networks) and pair."""


def pairs_of(
    rows: Rows, over: str, under: str, *, variant: str = "variant", block: str = "layer"
) -> dict[tuple[str, str], tuple[Row, Row]]:
    """Return the rows of two variants, by layer or network (`block`) and seed, where both have one."""
    found: dict[str, dict[tuple[str, str], Row]] = {over: {}, under: {}}
    for row in rows:
        if row[variant] in found:
            found[row[variant]][row[block], row.get("seed", "")] = row
    return {key: (row, found[under][key]) for key, row in found[over].items() if key in found[under]}


def log_ratios(rows: Rows, over: str, under: str, column: str | Figure) -> dict[tuple[str, str], float]:
    """Return the log ratios of two variants' figures, by layer and seed.

    The figure is a column, or computed from a row. A pair counts if both figures are positive.
    """
    read = column if callable(column) else lambda row: float(row[column] or "nan")
    pairs = pairs_of(rows, over, under)
    return {key: float(np.log(read(first) / read(second))) for key, (first, second) in pairs.items()}


@dataclass(frozen=True)
class Effect:
    """A geometric mean over blocks, which are layers or families of networks.

    Attributes:
        value: the mean of the blocks' means, which gives all blocks the same weight.
        low, high: its 95 % interval; both None with too few blocks or pairs, or if nothing varies.
        middle, error: the mean logarithm and its standard error, which is 0 without an interval.
        n: number of pairs.
    """

    value: float
    low: float | None
    high: float | None
    middle: float
    error: float
    n: int
    blocks: int

    def p_above(self, bound: float) -> float:
        """Return the one-sided p-value that the mean is at most a bound; 1 without an interval."""
        return self._tail(np.log(bound) - self.middle)

    def p_below(self, bound: float) -> float:
        """Return the one-sided p-value that the mean is at least a bound; 1 without an interval."""
        return self._tail(self.middle - np.log(bound))

    def p_differs(self, bound: float = 1.0) -> float:
        """Return the two-sided p-value of a bound."""
        return min(1.0, 2 * min(self.p_above(bound), self.p_below(bound)))

    @property
    def is_equal(self) -> bool:
        """Whether there are enough pairs, and all blocks are equal."""
        return not self.error and not self.middle and self.blocks >= _MIN_BLOCKS and self.n >= _MIN_PAIRS

    @property
    def p_apart(self) -> float:
        """The p-value of a difference from 1 by the margin or more (two one-sided tests, Schuirmann 1987).

        It is small if both are equivalent, and 0 if all pairs are equal.
        """
        return 0.0 if self.is_equal else max(self.p_above(1 / (1 + MARGIN)), self.p_below(1 + MARGIN))

    def _tail(self, distance: float) -> float:
        """Return the p-value of a mean that lies below or above a bound by a negative distance."""
        return float(stdtr(self.blocks - 1, distance / self.error)) if self.error else 1.0


def effect(logs: Logs) -> Effect | None:
    """Return the geometric mean of values given by their logarithms; None without values.

    Seeds of a layer are not independent of each other, nor are networks that share layers, so the uncertainty of a mean
    follows from the variance between blocks. Only finite values count.
    """
    groups = _by_block(logs)
    if not groups:
        return None
    means = np.array([group.mean() for group in groups])
    middle, n, blocks = float(means.mean()), sum(map(len, groups)), len(means)
    has_enough = blocks >= _MIN_BLOCKS and n >= _MIN_PAIRS
    error = float(means.std(ddof=1) / np.sqrt(blocks)) if has_enough else 0.0
    if not error:
        return Effect(float(np.exp(middle)), None, None, middle, 0.0, n, blocks)
    half = float(stdtrit(blocks - 1, (1 + _LEVEL) / 2)) * error
    value, low, high = np.exp([middle, middle - half, middle + half]).tolist()
    return Effect(value, low, high, middle, error, n, blocks)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm 1979): each times the number of p-values not smaller."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    corrected = np.minimum(np.maximum.accumulate(np.asarray(p_values, dtype=float)[order] * factors), 1.0)
    return [float(corrected[rank]) for rank in np.argsort(order, kind="stable")]


def _by_block(values: Logs) -> list[NDArray[np.float64]]:
    """Return the finite values of each block."""
    found: dict[str, list[float]] = {}
    for (block, _), value in values.items():
        if np.isfinite(value):
            found.setdefault(block, []).append(value)
    return [np.array(group) for group in found.values()]
