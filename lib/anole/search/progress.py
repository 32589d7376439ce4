"""How a search goes on: how well a batch was ranked before it was measured, and what the next one may save."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_MIN_CONFIGS = 4
"""So few configs are ranked rightly by chance too often to tell anything."""

_N_FASTEST = 8
"""Number of the fastest trials whose spread tells how far the next ones may reach."""


def rank_correlation(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float | None:
    """Return Spearman's rank correlation of two figures of n configs; equal figures share their mean rank.

    It is None for fewer than four configs, and where all scores or all speeds are equal.
    """
    if len(predicted) < _MIN_CONFIGS:
        return None
    one, other = (_ranks(figures) - (len(figures) - 1) / 2 for figures in (predicted, measured))
    norm = np.sqrt((one @ one) * (other @ other))
    return float(one @ other / norm) if norm else None


def _ranks(figures: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean rank of each figure, from 0, shape (n,)."""
    _, places, counts = np.unique(figures, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[places]
    return ranks


def expected_gain(gflops: NDArray[np.float64], n_next: int) -> float:
    r"""Return the share of the best latency that the next trials are expected to save.

    The logarithms of the best of many speeds lie as if their upper tail were exponential, whatever they are drawn from
    (Pickands 1975). Its scale $\sigma$ is how far the fastest are above the next one, in the mean (Hill 1975). The best
    of $n + m$ draws is then expected $\sigma \ln((n + m) / n)$ above that of $n$. A search whose trials become better
    stretches its own tail, and one that has found a new kind of config has a long tail. So does noise: where it is
    strong, a search goes on.

    Args:
        gflops: speeds of the trials so far, shape (n,); 0 for a failure.
        n_next: number of the next trials.
    """
    n = len(gflops)
    fastest = -np.sort(-gflops)[: _N_FASTEST + 1]
    n_working = np.count_nonzero(fastest)
    if n_working <= _N_FASTEST:
        # Nothing can be told yet. Each failure halves the hope that a batch of them deserves.
        return float(0.5 ** ((n - n_working) / n_next))
    *best, last = np.log(fastest)
    return -math.expm1(-(np.mean(best) - last) * math.log((n + n_next) / n))
