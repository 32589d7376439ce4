"""Confirmation at the end of a run: the fastest configs are measured again, interleaved, and ranked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import TypeVar

from anole.keys import canonical_json
from anole.record import Config, Confirmation, Measurement, Trial, utc_now
from anole.search.roles import Measure
from anole.search.settings import TunerSettings
from anole.search.ties import Compared, Prefer
from anole.search.watch import NO_WATCH, Watch

Worth = Callable[[Config, float], float]
"""A function from a config and its latency to the factor on its speed; see `anole.space.Space.worth`."""

_Ranked = TypeVar("_Ranked", bound=Trial | Confirmation)

_MAX_SLOWDOWN = 2.0
"""Max latency of a rival relative to the best; a slower config does not win in any network."""


def settle(
    trials: Sequence[Trial],
    settings: TunerSettings,
    confirmed: Sequence[Confirmation],
    confirm_with: Measure | None,
    worth: Worth,
    watch: Watch = NO_WATCH,
    default: Config | None = None,
    prefer: Prefer = lambda _: 0,
) -> list[Trial | Confirmation]:
    """Confirm the fastest trials of a run, unless already done, and return all successful configs, best first.

    An interrupted round of confirmations is repeated in full, since rivals are only comparable within one round.

    Args:
        trials: all trials of the run.
        settings: set the number of configs to confirm; 0 disables confirmation.
        confirmed: earlier confirmations of the run, oldest first; the last round made after the same number of trials
            is reused.
        confirm_with: measures the fastest configs again, more accurately; None leaves them unconfirmed.
        worth: see `Worth`.
        watch: receives new confirmations.
        default: the config that is built without tuning. It competes, because a search may have missed it and
            must not end with a slower one. None if it does not compete.
        prefer: chooses among the confirmed configs that tie for the fastest; it gets them fastest first.
    """
    configs = rivals(trials, settings.n_confirm, default, worth)
    confirmations = last_round(confirmed, len(trials))
    missing = {_identity(config) for config in configs} - {_identity(each.config) for each in confirmations}
    if confirm_with is not None and missing:
        confirmations = confirm(configs, confirm_with, len(trials), prefer)
        for confirmation in confirmations:
            watch.confirmation(confirmation)
    return rank(trials, confirmations, worth)


def last_round(confirmed: Sequence[Confirmation], after_trials: int) -> list[Confirmation]:
    """Return the last round of confirmations after the given number of trials; it may be incomplete.

    Confirmations must be sorted oldest first, and by rank within a round.
    """
    latest: list[Confirmation] = []
    for confirmation in confirmed:
        if confirmation.after_trials == after_trials:
            latest = [confirmation] if confirmation.rank == 0 else [*latest, confirmation]
    return latest


def fastest(trials: Iterable[Trial], worth: Worth) -> list[Trial]:
    """Return the successful trials, one per config, sorted by latency divided by worth, lowest first."""

    def cost_s(trial: Trial) -> float:
        latency_s = _cost_s(trial.measurement)
        return latency_s / max(worth(trial.config, latency_s), 1e-9)

    working = (trial for trial in trials if trial.measurement.latency_s is not None)
    return _first_of_each(sorted(working, key=cost_s), lambda trial: _identity(trial.config))


def fastest_of_each(trials: Iterable[Trial], knobs: Sequence[str]) -> list[Trial]:
    """Return the fastest successful trial for each combination of values of `knobs`; none if `knobs` is empty."""
    ranking = fastest(trials, lambda *_: 1.0) if knobs else ()
    return _first_of_each(ranking, lambda trial: canonical_json([trial.config[name] for name in knobs]))


def rivals(trials: Sequence[Trial], n: int, default: Config | None, worth: Worth) -> list[Config]:
    """Return the configs to confirm: the fastest n, plus the default, which may never have been tried."""
    configs = [trial.config for trial in fastest(trials, worth)[:n]]
    if configs and default is not None and _identity(default) not in map(_identity, configs):
        configs.append(default)
    return configs


def confirm(
    configs: Sequence[Config], measure: Measure, after_trials: int, prefer: Prefer = lambda _: 0
) -> list[Confirmation]:
    """Measure configs again, against each other, and rank them: the chosen one first, the others by latency.

    See `settle`.
    """
    pairs = zip(configs, measure(configs) if configs else (), strict=True)
    ranking = sorted(pairs, key=lambda pair: _cost_s(pair[1]))
    tied_ranks = [rank for rank, (_, measurement) in enumerate(ranking) if _is_tied(measurement)]
    if tied_ranks:
        ranking.insert(0, ranking.pop(tied_ranks[prefer([ranking[rank][0] for rank in tied_ranks])]))
    now = utc_now()
    return [
        Confirmation(config, _without_comparison(measurement), after_trials, rank, now)
        for rank, (config, measurement) in enumerate(ranking)
    ]


def rank(trials: Iterable[Trial], confirmations: Sequence[Confirmation], worth: Worth) -> list[Trial | Confirmation]:
    """Return all successful configs, best first: the confirmed ones, then the trials that were not measured again."""
    confirmed_ids = {_identity(confirmation.config) for confirmation in confirmations}
    successful = [confirmation for confirmation in confirmations if confirmation.measurement.latency_s is not None]
    unconfirmed = [trial for trial in fastest(trials, worth) if _identity(trial.config) not in confirmed_ids]
    return [*sorted(successful, key=lambda confirmation: confirmation.rank), *unconfirmed]


def diversify(ranking: Sequence[Trial | Confirmation], knobs: Sequence[str], n: int) -> list[Trial | Confirmation]:
    """Return n entries of a ranking: first the best of each combination of values of `knobs`, then the rest in order.

    A config need not have all of these knobs. Configs far slower than the best are left out.
    """
    fast = [each for each in ranking if _cost_s(each.measurement) <= _MAX_SLOWDOWN * _cost_s(ranking[0].measurement)]
    leaders = _first_of_each(fast, lambda each: canonical_json([each.config.get(name) for name in knobs]))
    leader_ids = {id(leader) for leader in leaders}
    return [*leaders, *(each for each in fast if id(each) not in leader_ids)][:n]


def _first_of_each(ranking: Iterable[_Ranked], kind: Callable[[_Ranked], str]) -> list[_Ranked]:
    """Return the first entry of each kind."""
    first_by_kind: dict[str, _Ranked] = {}
    for entry in ranking:
        first_by_kind.setdefault(kind(entry), entry)
    return list(first_by_kind.values())


def _is_tied(measurement: Measurement) -> bool:
    """Whether a config may be as fast as its fastest rival."""
    return isinstance(measurement, Compared) and measurement.min_ratio is not None and measurement.min_ratio <= 1.0


def _without_comparison(measurement: Measurement) -> Measurement:
    """Strip a measurement of the fields that are not recorded."""
    return Measurement(**{field.name: getattr(measurement, field.name) for field in fields(Measurement)})


def _cost_s(measurement: Measurement) -> float:
    """Return the sort key: the latency, or infinity for a failure."""
    return math.inf if measurement.latency_s is None else measurement.latency_s


def _identity(config: Config) -> str:
    return canonical_json(dict(config))
