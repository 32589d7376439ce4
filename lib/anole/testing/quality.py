"""The quality of a search over its trials: its fastest config so far, relative to the best one known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Curve:
    """What a run had found by when.

    Attributes:
        elapsed_s: shape (n,), when each trial was done.
        quality: shape (n,), after each trial the latency of the best known over that of the run's own best, so
            that 1 is perfect; NaN where it is not known.
    """

    elapsed_s: NDArray[np.float64]
    quality: NDArray[np.float64]

    def at_trials(self, n_trials: int) -> float:
        """Returns the quality after so many trials, or at the end of a shorter run; NaN where it is not known."""
        return float(self.quality[min(n_trials, len(self.quality)) - 1]) if n_trials > 0 else np.nan

    def at_seconds(self, elapsed_s: float) -> float:
        """Returns the quality after so many seconds, or at the end of a shorter run; NaN where it is not known."""
        return self.at_trials(int((self.elapsed_s <= elapsed_s).sum()))

    def reached(self, quality: float) -> tuple[int, float] | None:
        """Returns the trials and the seconds after which a quality was first reached; None when it never was."""
        good = np.flatnonzero(self.quality >= quality)
        return (int(good[0]) + 1, float(self.elapsed_s[good[0]])) if len(good) else None


def incumbents(latencies_s: Sequence[float]) -> NDArray[np.int64]:
    """Returns for each trial which one is the fastest up to it, shape (n,); -1 before the first success.

    Args:
        latencies_s: the latencies of n trials; NaN is a failure.
    """
    costs_s = np.nan_to_num(np.asarray(latencies_s, dtype=np.float64), nan=np.inf)
    fastest_before_s = np.concatenate([[np.inf], np.minimum.accumulate(costs_s)[:-1]])
    return np.maximum.accumulate(np.where(costs_s < fastest_before_s, np.arange(len(costs_s)), -1))


def log_gap(latencies_s: Sequence[float], best_s: float, n_fastest: int = 1) -> float:
    """Returns the mean natural logarithm of how much slower than the best known the fastest trials of a run are.

    The more trials count, the less one lucky draw decides.

    Args:
        latencies_s: the latencies of the trials; NaN is a failure.
        best_s: the best known.
        n_fastest: how many count; infinity comes of a run with fewer successes.
    """
    fastest = np.sort(np.asarray(latencies_s, dtype=np.float64))[:n_fastest]
    complete = len(fastest) == n_fastest and not np.isnan(fastest).any()
    return float(np.log(fastest / best_s).mean()) if complete else np.inf


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns the lower quartile, the median and the upper quartile; infinity, for never, sorts last.

    Each is one of the values, since nothing lies between a number and never.
    """
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75), method="inverted_cdf")
    return float(low), float(median), float(high)
