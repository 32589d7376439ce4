"""The quality of a search over its trials: its fastest config so far, relative to the best one known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anole.record import Trial


@dataclass(frozen=True)
class Curve:
    """The quality of a run over its trials.

    Attributes:
        elapsed_s: elapsed seconds at the end of each trial, shape (n,).
        quality: latency of the best known config over that of the run's best config after each trial, shape (n,);
            1 is perfect, NaN is unknown.
    """

    elapsed_s: NDArray[np.float64]
    quality: NDArray[np.float64]

    def at_trials(self, n_trials: int) -> float:
        """Returns the quality after `n_trials` trials, or at the end of a shorter run; NaN if unknown."""
        return float(self.quality[min(n_trials, len(self.quality)) - 1]) if n_trials > 0 else np.nan

    def at_seconds(self, elapsed_s: float) -> float:
        """Returns the quality after `elapsed_s` seconds, or at the end of a shorter run; NaN if unknown."""
        return self.at_trials(int((self.elapsed_s <= elapsed_s).sum()))

    def reached(self, quality: float) -> tuple[int, float] | None:
        """Returns the trials and the seconds after which a quality was first reached; None if it never was."""
        good = np.flatnonzero(self.quality >= quality)
        return (int(good[0]) + 1, float(self.elapsed_s[good[0]])) if len(good) else None


def incumbents(latencies_s: Sequence[float]) -> NDArray[np.int64]:
    """Returns for each trial the index of the fastest so far, shape (n,); -1 before the first success; NaN fails."""
    costs_s = np.nan_to_num(np.asarray(latencies_s, dtype=np.float64), nan=np.inf)
    fastest_before_s = np.concatenate([[np.inf], np.minimum.accumulate(costs_s)[:-1]])
    return np.maximum.accumulate(np.where(costs_s < fastest_before_s, np.arange(len(costs_s)), -1))


def log_gap(costs_s: Sequence[float], best_s: float, n_fastest: int = 1) -> float:
    """Returns the mean natural logarithm of the costs of a run's cheapest trials over the best known one.

    Costs are what the search minimises: latencies over the configs' worth; NaN is a failure. With more trials, a single
    lucky draw matters less; a run with fewer successes gives infinity.
    """
    cheapest = np.sort(np.asarray(costs_s, dtype=np.float64))[:n_fastest]
    complete = len(cheapest) == n_fastest and not np.isnan(cheapest).any()
    return float(np.log(cheapest / best_s).mean()) if complete else np.inf


def batch_sizes(trials: Iterable[Trial]) -> list[int]:
    """Returns the number of trials of each iteration of a run, in order."""
    return list(Counter(trial.iteration for trial in trials).values())


def shares(counts: Iterable[int]) -> str:
    """Describes how often each count occurs, such as batch sizes or repeats of a timing: ``16: 75 %, 24: 25 %``."""
    found = Counter(counts)
    return ", ".join(f"{count}: {100 * n / found.total():.0f} %" for count, n in sorted(found.items()))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns the lower quartile, the median and the upper quartile; infinity means never and sorts last.

    Each is one of the values, since a number and infinity have no midpoint.
    """
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75), method="inverted_cdf")
    return float(low), float(median), float(high)
