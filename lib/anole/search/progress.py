"""Progress of a search: rank correlation of predicted and measured speeds, and the expected gain of the next batch."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_MIN_CONFIGS = 4
"""Fewer configs are too often ranked correctly by chance."""

_N_FASTEST = 8
"""Number of the fastest speeds whose spread predicts the gain of the next trials."""

_MIN_DIFFERENCE = 1e-6
"""The relative difference below which two speeds are equal."""


def rank_correlation(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float | None:
    """Return Spearman's rank correlation of two arrays of shape (n,), one value per config; ties get their mean rank.

    The result is None for fewer than four configs, or if all scores or all speeds are equal.
    """
    if len(predicted) < _MIN_CONFIGS:
        return None
    predicted_ranks, measured_ranks = (_ranks(values) - (len(values) - 1) / 2 for values in (predicted, measured))
    norm = np.sqrt((predicted_ranks @ predicted_ranks) * (measured_ranks @ measured_ranks))
    return float(predicted_ranks @ measured_ranks / norm) if norm else None


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean rank of each value, from 0, shape (n,)."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return ranks


def expected_gain(gflops: NDArray[np.float64], n_next: int) -> float:
    r"""Return the share of the best latency that the next trials are expected to save.

    The upper tail of the logarithms of the speeds is approximately exponential, whatever their distribution (Pickands
    1975). Its scale $\sigma$ is the mean excess of the fastest over the next one (Hill 1975). The best of $n + m$
    samples is then expected to be $\sigma \ln((n + m) / n)$ above the best of $n$. A search whose trials improve
    stretches its own tail, and one that has found a new kind of config has a long tail. Strong noise also lengthens the
    tail, and with it the search. Equal speeds count once, because different configs may give the same program.

    Args:
        gflops: speeds of the trials so far, shape (n,); 0 for a failure.
        n_next: number of the next trials.
    """
    n, logs = len(gflops), -np.sort(-np.log(gflops[gflops > 0]))
    distinct = logs[np.append(True, np.diff(logs) < -_MIN_DIFFERENCE)[: len(logs)]]
    if len(distinct) <= _N_FASTEST:
        # Too few speeds for an estimate: each batch of failures or known speeds halves the expected gain.
        return float(0.5 ** ((n - len(distinct)) / n_next))
    *best, last = distinct[: _N_FASTEST + 1]
    return -math.expm1(-(np.mean(best) - last) * math.log((n + n_next) / n))
