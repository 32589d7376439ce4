"""Replay evaluators on the recorded run times of others' spaces, one by one, as CSV.

    HUB=folder python -m benchmarks.search.recorded > docs/results/data/search/recorded.csv

As on hardware, the first run is not timed. An evaluator sees the following runs in order until it stops; its latency is
compared with the mean of all timed runs. AdaTune's evaluator has micro-batches of one run, since single run times are
recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from anole.bench import load
from anole.search.evaluators.adaptive_evaluator import AdaptiveEvaluator
from anole.search.evaluators.fixed import Fixed
from anole.search.roles import Evaluator
from benchmarks.common.rows import print_rows
from benchmarks.search.exact import SPACES

_WITHIN = (1, 2, 5)
_MIN_RUNS = 32
_NO_LIMIT_S = 1e6
COLUMNS = ("space", "evaluator", "configs", "runs", "timed_s", "saved_s", *(f"within_{n}%" for n in _WITHIN), "slower")
"""For each space and evaluator: the working configs; the mean number of timed runs; the seconds of all timed runs, and
those that the evaluator saves; the share of configs whose latency is that close to the mean of all runs; and how much
slower the config is that the evaluator ranks first than the fastest one."""


def evaluators(n_runs: int) -> Mapping[str, Evaluator]:
    """Return the compared evaluators of at most n timed runs."""
    return {
        "AdaTune, CV < 0.1": AdaptiveEvaluator(micro_batch=1, max_micro_batches=n_runs, max_s=_NO_LIMIT_S),
        "AdaTune, CV < 0.01": AdaptiveEvaluator(1, max_micro_batches=n_runs, threshold=0.01, max_s=_NO_LIMIT_S),
        "one run": Fixed(1, 1),
        "AutoTVM (4 x 3)": Fixed(),
    }


class Recorded:
    """A timer that returns the mean of the next recorded runs, in seconds."""

    def __init__(self, runs_s: Sequence[float]) -> None:
        self.runs_s, self.n_done = runs_s, 0

    def __call__(self, number: int) -> float:
        """Return the mean seconds of the next runs."""
        next_s = self.runs_s[self.n_done : self.n_done + number]
        self.n_done += len(next_s)
        return float(np.mean(next_s))


def replay(name: str, runs_s: Sequence[Sequence[float]]) -> Iterator[dict[str, object]]:
    """Yield the row of each evaluator on the recorded runs of all configs of a space."""
    configs = [runs for runs in runs_s if len(runs) >= _MIN_RUNS]
    means_s = np.array([np.mean(runs[1:]) for runs in configs])
    timed_s = sum(sum(runs[1:]) for runs in configs)
    for title, evaluator in evaluators(_MIN_RUNS - 1).items():
        timers = [Recorded(runs) for runs in configs]
        found_s = np.array([evaluator.evaluate(timer).latency_s for timer in timers])
        spent_s = sum(sum(timer.runs_s[1 : timer.n_done]) for timer in timers)
        errors = np.abs(found_s / means_s - 1)
        figures = (np.mean([timer.n_done - 1 for timer in timers]), timed_s, timed_s - spent_s)
        shares = (np.mean(errors <= percent / 100) for percent in _WITHIN)
        slower = means_s[np.argmin(found_s)] / means_s.min() - 1
        values = (*(f"{figure:.3f}" for figure in figures), *(f"{share:.4f}" for share in shares), f"{slower:.5f}")
        yield dict(zip(COLUMNS, (name, title, len(configs), *values), strict=True))


def main() -> None:
    """Print a row for each space and evaluator."""
    spaces = SPACES["gpu"].files()
    print_rows(COLUMNS, (row for name, path in spaces.items() for row in replay(name, load(path).repeats_s or ())))


if __name__ == "__main__":
    main()
