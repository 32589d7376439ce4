"""The middle of symmetric numbers and its interval, from signed ranks: right whatever their distribution is.

The estimate is that of Hodges and Lehmann, the median of the means of all pairs; the interval inverts Wilcoxon's
signed-rank test (Hollander and Wolfe 1999, Nonparametric Statistical Methods, chapter 3). Numbers that a neighbour
spoiled cost little.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

_EXACT = 200
"""With more numbers, the normal distribution is as good as the exact one."""


@dataclass(frozen=True)
class Middle:
    """An estimate of the middle with its interval; infinite where there are too few numbers for its level."""

    value: float
    low: float
    high: float


def middle(values: NDArray[np.float64], alpha: float) -> Middle:
    """Returns the middle of numbers, and an interval that holds the true one with probability `1 - alpha` at least.

    Args:
        values: independent numbers, each as likely above as below the true middle by any distance; at least one.
        alpha: the probability with which the interval may be wrong.
    """
    first, second = np.triu_indices(len(values))
    means = np.sort((values[first] + values[second]) / 2)
    cut = _cut(len(values), alpha / 2)
    low, high = (means[cut - 1], means[-cut]) if cut else (-inf, inf)
    return Middle(float(np.median(means)), float(low), float(high))


@cache
def _cut(count: int, tail: float) -> int:
    """Returns how many means of pairs are cut off at either end: their sum of ranks is rarer than the tail."""
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
