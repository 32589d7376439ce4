"""The search loop: propose, choose, measure, append and learn until the budget is spent."""

from __future__ import annotations

from anole.search.roles import Measure
from anole.search.state import Search
from anole.search.watch import NO_WATCH, Watch

TUNER_VERSION = 5
"""Part of a run's key; incremented when a code change makes the same settings propose different configs."""


def tune(search: Search, measure: Measure, n_trials: int, watch: Watch = NO_WATCH) -> None:
    """Tune one task until it has `n_trials` trials, the space is exhausted or the search has converged.

    To raise the budget, call `tune` again with more trials: a batch that the smaller budget cut off is completed
    first. To resume an interrupted run, give the search its recorded trials: it proposes the same configs again, and
    does not measure the recorded ones again. Both give the same trials as an uninterrupted run.

    Args:
        search: the state of the run: its history, its explorer, its sampler and its surrogate.
        measure: measures configs; a failed candidate also has a measurement.
        n_trials: total number of trials of the run, including recorded trials.
        watch: callbacks for the events of the search, such as one that stores every trial.

    Raises:
        ConfigError: a recorded config does not belong to the space.
    """
    search.start_clock()
    while len(search.trials) < n_trials and not search.done:
        if search.batch is None:
            candidates = search.propose()  # the explorer walks the space, guided by the surrogate
            chosen = search.choose(candidates)  # the sampler picks a few configs that were never measured
            search.begin(chosen, candidates.log)  # recorded trials of this iteration count as measured
        if configs := search.pending(n_trials):
            watch.iteration(search.iteration, search.log)
            for config, measurement in zip(configs, measure(configs), strict=True):  # the only expensive step
                watch.trial(search.append(config, measurement))  # stored before the next config is measured
        search.learn()  # adds a complete batch to the history; the next `propose` fits the surrogate
