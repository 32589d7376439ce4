"""Sequential comparison of two engines: rounds continue until the confidence interval of the latency ratio decides.

Repeatedly checking a confidence interval and stopping when it decides inflates the error rate. Therefore there are only
a few interim analyses, each after 1.5 times as many rounds as the one before. They share the error probability: the
k-th analysis gets 1/(k (k + 1)) of it. The total never exceeds it, however long the comparison takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from math import ceil, inf, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.01
"""Max probability of a wrong verdict."""

_FIRST_ROUNDS, _GROWTH = 10, 1.5
"""Number of rounds before the first interim analysis, and the growth factor of this number per analysis."""

_MAX_EXACT_VALUES = 200
"""With more values, the normal approximation of their rank sum is as accurate as the exact distribution."""


class Verdict(StrEnum):
    """The relation of an interval to a threshold."""

    SLOWER = "slower"
    FASTER = "faster"
    EQUAL = "equal"
    OPEN = "open"


@dataclass(frozen=True)
class Ratio:
    """An estimate of the ratio of two latencies, its confidence interval, and the smallest relevant difference."""

    value: float
    low: float
    high: float
    rounds: int
    threshold: float

    @property
    def verdict(self) -> Verdict:
        """The verdict of the interval: `OPEN` if it contains both relevant and irrelevant differences."""
        min_equal, max_equal = 1 / (1 + self.threshold), 1 + self.threshold
        if self.low > max_equal:
            return Verdict.SLOWER
        if self.high < min_equal:
            return Verdict.FASTER
        return Verdict.EQUAL if min_equal <= self.low and self.high <= max_equal else Verdict.OPEN


def compare_rounds(
    take: Callable[[], float], threshold: float, seconds: float, max_rounds: int, alpha: float = ALPHA
) -> Ratio:
    """Take rounds until the confidence interval of the ratio decides, or a limit is reached.

    Args:
        take: takes a round and returns the logarithm of the latency ratio, with a symmetrically distributed error.
        threshold: the smallest relevant relative difference.
        seconds: no round begins after this many seconds.
        max_rounds: max number of rounds.
        alpha: max probability of a wrong verdict.
    """
    began_s, logs, looks, next_look = time.monotonic(), [take()], 0, _FIRST_ROUNDS
    while True:
        is_over = len(logs) >= max_rounds or time.monotonic() >= began_s + seconds
        if is_over or len(logs) >= next_look:
            looks, next_look = looks + 1, ceil(len(logs) * _GROWTH)
            value, low, high = map(float, np.exp(middle(np.array(logs), alpha / (looks * (looks + 1)))))
            ratio = Ratio(value, low, high, len(logs), threshold)
            if is_over or ratio.verdict is not Verdict.OPEN:
                return ratio
        logs.append(take())


def middle(values: NDArray[np.float64], alpha: float) -> tuple[float, float, float]:
    """Return the estimated center of a symmetric distribution, and the ends of its confidence interval.

    The estimate is the Hodges-Lehmann estimator, the median of the means of all pairs; the interval inverts Wilcoxon's
    signed-rank test (Hollander and Wolfe 1999, Nonparametric Statistical Methods, chapter 3). Both are robust against
    outliers due to background load. With too few values for the error probability `alpha`, the interval is infinite.
    The values must be independent, and distributed symmetrically about the true center.
    """
    rows, columns = np.triu_indices(len(values))
    means = np.sort((values[rows] + values[columns]) / 2)
    cut = _cut(len(values), alpha / 2)
    low, high = (float(means[cut - 1]), float(means[-cut])) if cut else (-inf, inf)
    return float(np.median(means)), low, high


@cache
def _cut(count: int, tail: float) -> int:
    """Return the number of pair means to cut off at each end: the quantile `tail` of the rank sum."""
    if count > _MAX_EXACT_VALUES:
        mean = count * (count + 1) / 4
        deviation = sqrt(mean * (2 * count + 1) / 6)
        return max(0, int(mean + NormalDist().inv_cdf(tail) * deviation))
    probability = np.zeros(count * (count + 1) // 2 + 1)
    probability[0] = 1.0
    for rank in range(1, count + 1):
        probability[rank:] += probability[:-rank].copy()
        probability /= 2
    return int(np.searchsorted(np.cumsum(probability), tail, side="right"))
