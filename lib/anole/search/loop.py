"""The loop: propose, choose, measure, append, learn, as long as the budget lasts."""

from __future__ import annotations

from anole.search.roles import Measure
from anole.search.state import Search
from anole.search.watch import NOBODY, Watch

TUNER_VERSION = 4
"""Raised when the same settings lead to other proposals than before; a part of a run's key."""


def tune(search: Search, measure: Measure, n_trials: int, watch: Watch = NOBODY) -> None:
    """Tunes one task until it has `n_trials` trials, the space is exhausted or the search has converged.

    A budget is raised by another call with more trials: a batch that the smaller budget cut off is completed first.
    An interrupted run is resumed by replay: a search that is given the recorded trials proposes again what it
    proposed then, but what is recorded is not measured again. Both ways end with the trials of a run in one go.

    Args:
        search: what the run knows so far: its history, and the explorer, the sampler and the surrogate at work.
        measure: measures configs; a candidate that fails gives a measurement, too.
        n_trials: the budget, with the trials that the search has and those that were recorded.
        watch: what is told of every trial, such as the file that stores it.

    Raises:
        ConfigError: a recorded config does not belong to the space.
    """
    search.start_clock()
    while len(search.trials) < n_trials and not search.done:
        if search.batch is None:
            candidates = search.propose()  # the explorer walks the space on the surrogate's word
            chosen = search.choose(candidates)  # the sampler takes few, representative, never measured
            search.begin(chosen, candidates.log)  # what was recorded of this iteration counts as measured
        if configs := search.pending(n_trials):
            watch.iteration(search.iteration, search.log)
            for config, measurement in zip(configs, measure(configs), strict=True):  # the only expensive step
                watch.trial(search.append(config, measurement))  # stored before the next one is measured
        search.learn()  # a whole batch becomes history, to which the surrogate is fitted
