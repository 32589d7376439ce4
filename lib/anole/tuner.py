"""The loop: explore, sample, measure, learn; after an interruption it goes on as if there had been none."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from anole.keys import canonical_json, derive_seed
from anole.record import Config, Confirmation, Measurement, Trial, utc_now
from anole.roles import History, Measure
from anole.settings import TunerSettings
from anole.space.space import Space, Vectors

TUNER_VERSION = 1
"""Raised when the same settings lead to other proposals than before; a part of a run's key."""

logger = logging.getLogger(__name__)


def _ignore(*_: object) -> None:
    pass


def tune(
    space: Space,
    flop: int,
    settings: TunerSettings,
    measure: Measure,
    n_trials: int,
    *,
    seed: int,
    task_key: str,
    recorded: Sequence[Trial] = (),
    confirmed: Sequence[Confirmation] = (),
    confirm: Measure | None = None,
    on_iteration: Callable[[int, Mapping[str, float]], None] = _ignore,
    on_trial: Callable[[Trial], None] = _ignore,
    on_confirmation: Callable[[Confirmation], None] = _ignore,
) -> Trial | Confirmation | None:
    """Tunes one task: measures promising configs while the budget and the space last, then confirms the best.

    A run is resumed by replay: given the trials that it recorded, the explorer proposes again what it did
    then, so that its state is what it was, but the recorded configs count as chosen and are not measured
    again. An iteration that was cut off is filled up. So a run that was interrupted, or whose budget was
    raised, ends with the trials that it would have had in one go.

    Args:
        space: where the configs come from.
        flop: floating-point operations of one run of the task's kernel.
        settings: the parts of the tuner.
        measure: what measures a batch.
        n_trials: the budget, recorded trials included.
        seed: with `task_key`, where all randomness comes from.
        task_key: the task's content key.
        recorded: trials of the same run.
        confirmed: confirmations of the same run; the fastest are not confirmed again after as many trials.
        confirm: measures the fastest configs again, more carefully; they stay unconfirmed without it.
        on_iteration: is handed the number of every iteration that measures something, with figures of its search.
        on_trial: is handed every new trial as soon as it is measured.
        on_confirmation: is handed every new confirmation, the fastest first.

    Returns:
        The fastest: confirmed, if anything was, or as its trial; None when every trial failed.

    Raises:
        ConfigError: a recorded config does not belong to the space.
    """
    trials = sorted(recorded, key=lambda trial: trial.number)
    for trial in _search(space, flop, settings, measure, n_trials, seed, task_key, tuple(trials), on_iteration):
        on_trial(trial)
        trials.append(trial)
    confirmations = [confirmation for confirmation in confirmed if confirmation.after_trials == len(trials)]
    if confirm is not None and not confirmations:
        confirmations = _confirm(_fastest(trials)[: settings.n_confirm], confirm, len(trials))
        for confirmation in confirmations:
            on_confirmation(confirmation)
    return _best(trials, confirmations)


def _search(
    space: Space,
    flop: int,
    settings: TunerSettings,
    measure: Measure,
    n_trials: int,
    seed: int,
    task_key: str,
    recorded: Sequence[Trial],
    on_iteration: Callable[[int, Mapping[str, float]], None],
) -> Iterator[Trial]:
    """Replays the recorded trials, then yields new ones until there are `n_trials` of both."""
    explorer, sampler = settings.explorer.start(space), settings.sampler.start(space)
    surrogate = settings.surrogate.start(space)
    history = History(space, flop)
    numbers = itertools.count(recorded[-1].number + 1 if recorded else 0)
    last_recorded = max((trial.iteration for trial in recorded), default=-1)
    n_left = n_trials - len(recorded)
    began_s = time.perf_counter()
    for iteration in itertools.count():
        if n_left <= 0:
            return
        search_began_s = time.perf_counter()
        if len(history):
            surrogate.fit(history)
        rng = np.random.default_rng(derive_seed(seed, task_key, iteration))
        candidates = explorer.propose(surrogate, history, rng)
        # Always a whole batch, cut off afterwards: a budget that is raised later must not change the choice.
        chosen = sampler.choose(candidates, history, settings.batch, rng)
        known = [trial for trial in recorded if trial.iteration == iteration]
        vectors = _vectors(space, known)
        if iteration >= last_recorded:
            fresh = chosen[~np.isin(space.indices(chosen), space.indices(vectors))]
            vectors = np.concatenate([vectors, fresh[: min(settings.batch - len(known), n_left)]])
            if not len(vectors):
                logger.info("nothing more to propose after %d trials", len(history))
                return
        if known:
            began_s = time.perf_counter() - known[-1].elapsed_s
        measurements = [trial.measurement for trial in known]
        configs = [space.config(vector) for vector in vectors[len(known) :]]
        if configs:
            on_iteration(iteration, {"search_s": time.perf_counter() - search_began_s, **candidates.log})
        for config, measurement in zip(configs, measure(configs) if configs else (), strict=True):
            measurements.append(measurement)
            elapsed_s = time.perf_counter() - began_s
            gflops = flop / measurement.latency_s / 1e9 if measurement.latency_s else None
            yield Trial(next(numbers), iteration, config, measurement, elapsed_s, gflops, utc_now())
        history.add(vectors, measurements)
        n_left -= len(configs)


def _vectors(space: Space, trials: Sequence[Trial]) -> Vectors:
    """Returns the index vectors of n trials, shape (n, n_knobs)."""
    vectors = [space.vector(trial.config) for trial in trials]
    return np.array(vectors, dtype=np.int64).reshape(-1, len(space.knobs))


def _cost_s(measurement: Measurement) -> float:
    """Returns what to sort by: the latency, a failure last of all."""
    return math.inf if measurement.latency_s is None else measurement.latency_s


def _identity(config: Config) -> str:
    return canonical_json(dict(config))


def _fastest(trials: Iterable[Trial]) -> list[Trial]:
    """Returns the trials that worked, the fastest first, one for each config."""
    working = (trial for trial in trials if trial.measurement.latency_s is not None)
    fastest: dict[str, Trial] = {}
    for trial in sorted(working, key=lambda trial: _cost_s(trial.measurement)):
        fastest.setdefault(_identity(trial.config), trial)
    return list(fastest.values())


def _confirm(trials: Sequence[Trial], confirm: Measure, after_trials: int) -> list[Confirmation]:
    """Measures the configs of the fastest trials again, and ranks them."""
    configs = [trial.config for trial in trials]
    measured = zip(configs, confirm(configs) if configs else (), strict=True)
    ranking = sorted(measured, key=lambda pair: _cost_s(pair[1]))
    now = utc_now()
    return [
        Confirmation(config, measurement, after_trials, rank, now) for rank, (config, measurement) in enumerate(ranking)
    ]


def _best(trials: Iterable[Trial], confirmations: Sequence[Confirmation]) -> Trial | Confirmation | None:
    """Returns the fastest that was confirmed, or else the fastest trial that no confirmation refuted."""
    standing = [confirmation for confirmation in confirmations if confirmation.measurement.latency_s is not None]
    if standing:
        return min(standing, key=lambda confirmation: confirmation.rank)
    refuted = {_identity(confirmation.config) for confirmation in confirmations}
    return next((trial for trial in _fastest(trials) if _identity(trial.config) not in refuted), None)
