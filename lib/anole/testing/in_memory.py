"""A complete tuning run in memory, on a substitute for hardware such as a formula or a table."""

from __future__ import annotations

from collections.abc import Sequence

from anole.record import Confirmation, Trial
from anole.search.confirm import settle
from anole.search.loop import tune
from anole.search.roles import Measure
from anole.search.settings import TunerSettings
from anole.search.state import Search, Subject
from anole.search.watch import NO_WATCH, Watch


def tune_in_memory(
    subject: Subject,
    settings: TunerSettings,
    measure: Measure,
    n_trials: int,
    *,
    seed: int,
    recorded: Sequence[Trial] = (),
    confirmed: Sequence[Confirmation] = (),
    confirm_with: Measure | None = None,
    watch: Watch = NO_WATCH,
) -> Trial | Confirmation | None:
    """Tune one task as `anole tune` does, without a shard, a target or a worker process.

    Args:
        subject: the task to search.
        settings: the parts of the tuner.
        measure: measures a batch.
        n_trials: the budget, including recorded trials.
        seed: the seed of all randomness.
        recorded: earlier trials of the same run.
        confirmed: earlier confirmations of the run; confirmations after the same number of trials are reused.
        confirm_with: measures the fastest configs again, more accurately; None leaves them unconfirmed.
        watch: callbacks for iterations, trials and confirmations.

    Returns:
        The fastest config, as a confirmation if any was confirmed, otherwise as its trial; None if every trial failed.

    Raises:
        ConfigError: a recorded config does not belong to the space.
    """
    trials = list(recorded)
    if len(trials) < n_trials:
        search = Search(subject, settings, seed=seed, recorded=recorded)
        tune(search, measure, n_trials, watch)
        trials = search.trials
    ranking = settle(trials, settings, confirmed, confirm_with, subject.space.worth, watch)
    return next(iter(ranking), None)
