"""Compares two engines until the interval of their ratio decides, without raising false alarms.

Whoever looks at an interval again and again, and stops when it decides, is wrong more often than the interval says.
Here the looks are few, each after half as many rounds again, and share the probability of an error: the k-th has a
part of 1/(k (k + 1)), so that all together never exceed it, however long the comparison goes on.
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
"""The probability with which a comparison may be wrong."""

_FIRST, _GROWTH = 10, 1.5
"""Rounds before the first look, which could not decide with less, and between one look and the next."""

_EXACT = 200
"""With more numbers, the normal distribution of their ranks' sum is as good as the exact one."""


class Verdict(StrEnum):
    """What an interval says of a threshold."""

    SLOWER = "slower"
    FASTER = "faster"
    EQUAL = "equal"
    OPEN = "open"


@dataclass(frozen=True)
class Ratio:
    """An estimate of a ratio of two latencies, its interval, and the relative difference from which on it counts."""

    value: float
    low: float
    high: float
    rounds: int
    threshold: float

    @property
    def verdict(self) -> Verdict:
        """What the interval says: `OPEN` if it holds both what counts and what does not."""
        least, most = 1 / (1 + self.threshold), 1 + self.threshold
        if self.low > most:
            return Verdict.SLOWER
        if self.high < least:
            return Verdict.FASTER
        return Verdict.EQUAL if least <= self.low and self.high <= most else Verdict.OPEN


def compare_rounds(
    take: Callable[[], float], threshold: float, seconds: float, rounds: int, alpha: float = ALPHA
) -> Ratio:
    """Take rounds until the interval of the ratio decides, or a limit is reached.

    Args:
        take: takes a round and returns the logarithm of the ratio that it found, which is as likely too large as too
            small by any amount.
        threshold: the relative difference from which on it counts.
        seconds: no round begins after so many seconds.
        rounds: most rounds.
        alpha: the probability with which the verdict may be wrong.
    """
    began_s, logs, looks, next_look = time.monotonic(), [take()], 0, _FIRST
    while True:
        is_over = len(logs) >= rounds or time.monotonic() >= began_s + seconds
        if is_over or len(logs) >= next_look:
            looks, next_look = looks + 1, ceil(len(logs) * _GROWTH)
            value, low, high = map(float, np.exp(middle(np.array(logs), alpha / (looks * (looks + 1)))))
            ratio = Ratio(value, low, high, len(logs), threshold)
            if is_over or ratio.verdict is not Verdict.OPEN:
                return ratio
        logs.append(take())


def middle(values: NDArray[np.float64], alpha: float) -> tuple[float, float, float]:
    """Return the middle of numbers, and the ends of an interval that holds the true one, whatever the distribution.

    The estimate is that of Hodges and Lehmann, the median of the means of all pairs; the interval inverts Wilcoxon's
    signed-rank test (Hollander and Wolfe 1999, Nonparametric Statistical Methods, chapter 3). Numbers that a neighbour
    spoiled cost little. With too few numbers for `alpha`, the probability of being wrong, the interval is infinite. The
    numbers are independent, each as likely above as below the true middle by any distance.
    """
    first, second = np.triu_indices(len(values))
    means = np.sort((values[first] + values[second]) / 2)
    cut = _cut(len(values), alpha / 2)
    low, high = (float(means[cut - 1]), float(means[-cut])) if cut else (-inf, inf)
    return float(np.median(means)), low, high


@cache
def _cut(count: int, tail: float) -> int:
    """Return how many means of pairs are cut off at either end: their sum of ranks is rarer than the tail."""
    if count > _EXACT:
        middle = count * (count + 1) / 4
        deviation = sqrt(middle * (2 * count + 1) / 6)
        return max(0, int(middle + NormalDist().inv_cdf(tail) * deviation))
    probability = np.zeros(count * (count + 1) // 2 + 1)
    probability[0] = 1.0
    for rank in range(1, count + 1):
        probability[rank:] += probability[:-rank].copy()
        probability /= 2
    return int(np.searchsorted(np.cumsum(probability), tail, side="right"))
