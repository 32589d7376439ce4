"""Metrics of a search over its trials: the fastest config so far relative to the best known one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from anole.record import Trial


def incumbents(latencies_s: Sequence[float]) -> NDArray[np.int64]:
    """For each trial, return the index of the fastest so far, shape (n,); -1 before any success; NaN is a failure."""
    costs_s = np.nan_to_num(np.asarray(latencies_s, dtype=np.float64), nan=np.inf)
    fastest_before_s = np.concatenate([[np.inf], np.minimum.accumulate(costs_s)[:-1]])
    return np.maximum.accumulate(np.where(costs_s < fastest_before_s, np.arange(len(costs_s)), -1))


def log_gap(costs_s: Sequence[float], best_s: float, n_fastest: int = 1) -> float:
    """Return the mean natural logarithm of the ratios of a run's lowest costs to the best known one.

    Costs are the minimized quantity: latencies over the configs' worth; NaN is a failure. With more trials, a single
    lucky sample matters less; a run with fewer successes gives infinity.
    """
    cheapest = np.sort(np.asarray(costs_s, dtype=np.float64))[:n_fastest]
    complete = len(cheapest) == n_fastest and not np.isnan(cheapest).any()
    return float(np.log(cheapest / best_s).mean()) if complete else np.inf


def batch_sizes(trials: Iterable[Trial]) -> list[int]:
    """Return the number of trials of each iteration of a run, in order."""
    return list(Counter(trial.iteration for trial in trials).values())


def format_shares(counts: Iterable[int]) -> str:
    """Format the frequency of each count, such as batch sizes or repeats of a timing: ``16: 75 %, 24: 25 %``."""
    frequencies = Counter(counts)
    return ", ".join(f"{count}: {100 * n / frequencies.total():.0f} %" for count, n in sorted(frequencies.items()))
