"""Confirmation at the end of a run: the fastest configs are measured again in turns, and ranked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields

from anole.keys import canonical_json
from anole.record import Config, Confirmation, Measurement, Trial, utc_now
from anole.search.roles import Measure
from anole.search.settings import TunerSettings
from anole.search.ties import Compared, Prefer
from anole.search.watch import NOBODY, Watch

Worth = Callable[[Config, float], float]
"""The share of its speed that a config with a latency is worth, see `anole.space.Space.worth`."""

_FAR = 2.0
"""Rivals take at most this many times the latency of the best; no network makes up for more."""


def settle(
    trials: Sequence[Trial],
    settings: TunerSettings,
    confirmed: Sequence[Confirmation],
    confirm_with: Measure | None,
    worth: Worth,
    watch: Watch = NOBODY,
    default: Config | None = None,
    prefer: Prefer = lambda _: 0,
) -> list[Trial | Confirmation]:
    """Confirms the fastest trials of a run, unless that is already done, and returns all that worked, best first.

    A round of confirmations that an interruption cut off is measured again as a whole: rivals count only together.

    Args:
        trials: all trials of the run.
        settings: the tuner's settings, which include the number of confirmed configs.
        confirmed: earlier confirmations of the run, the oldest first; the last round that was made after the same
            number of trials is reused.
        confirm_with: measures the fastest configs again, more carefully; None leaves them unconfirmed.
        worth: see `Worth`.
        watch: the callback for new confirmations.
        default: the config that is built without tuning. It competes, because a search may have missed it and
            must not end with a slower one. None if it does not compete.
        prefer: chooses among the confirmed configs that are as fast as the fastest, which are given the fastest first.
    """
    configs = rivals(trials, settings.n_confirm, default, worth)
    confirmations = last_round(confirmed, len(trials))
    if confirm_with is not None and not _holds(confirmations, configs):
        confirmations = confirm(configs, confirm_with, len(trials), prefer)
        for confirmation in confirmations:
            watch.confirmation(confirmation)
    return ranked(trials, confirmations, worth)


def last_round(confirmed: Sequence[Confirmation], after_trials: int) -> list[Confirmation]:
    """Returns the last round of confirmations after a number of trials, which may be incomplete.

    Args:
        confirmed: all confirmations of the run, the oldest first; those of a round are stored by their rank.
        after_trials: the number of trials.
    """
    found: list[Confirmation] = []
    for confirmation in confirmed:
        if confirmation.after_trials == after_trials:
            found = [confirmation] if confirmation.rank == 0 else [*found, confirmation]
    return found


def fastest(trials: Iterable[Trial], worth: Worth) -> list[Trial]:
    """Returns the successful trials, one per config, sorted by latency divided by worth, the lowest first."""
    working = (trial for trial in trials if trial.measurement.latency_s is not None)
    found: dict[str, Trial] = {}

    def cost_s(trial: Trial) -> float:
        latency_s = _cost_s(trial.measurement)
        return latency_s / max(worth(trial.config, latency_s), 1e-9)

    for trial in sorted(working, key=cost_s):
        found.setdefault(_identity(trial.config), trial)
    return list(found.values())


def fastest_of_each(trials: Iterable[Trial], knobs: Sequence[str]) -> list[Trial]:
    """Returns the fastest successful trial for each combination of values of `knobs`; nothing without knobs."""
    found: dict[str, Trial] = {}
    for trial in fastest(trials, lambda *_: 1.0) if knobs else ():
        found.setdefault(canonical_json([trial.config[name] for name in knobs]), trial)
    return list(found.values())


def rivals(trials: Sequence[Trial], n: int, default: Config | None, worth: Worth) -> list[Config]:
    """Returns the configs to confirm: the fastest n, and the default config, which may never have been tried.

    Args:
        trials: the run's trials.
        n: how many of its fastest; with 0 nothing is confirmed.
        default: the default config; None where it does not compete.
        worth: see `Worth`.
    """
    found = [trial.config for trial in fastest(trials, worth)[:n]]
    if found and default is not None and _identity(default) not in map(_identity, found):
        found.append(default)
    return found


def confirm(
    configs: Sequence[Config], measure: Measure, after_trials: int, prefer: Prefer = lambda _: 0
) -> list[Confirmation]:
    """Measures some configs again, against each other, and ranks them: the chosen one first, the others by latency.

    Args:
        configs: the configs to measure.
        measure: measures them, more carefully than a trial.
        after_trials: number of trials of the run.
        prefer: see `settle`.
    """
    measured = zip(configs, measure(configs) if configs else (), strict=True)
    ranking = sorted(measured, key=lambda pair: _cost_s(pair[1]))
    tied = [at for at, (_, measurement) in enumerate(ranking) if _is_tied(measurement)]
    if tied:
        ranking.insert(0, ranking.pop(tied[prefer([ranking[at][0] for at in tied])]))
    now = utc_now()
    return [
        Confirmation(config, _plain(measurement), after_trials, rank, now)
        for rank, (config, measurement) in enumerate(ranking)
    ]


def ranked(trials: Iterable[Trial], confirmations: Sequence[Confirmation], worth: Worth) -> list[Trial | Confirmation]:
    """Returns all that worked, best first: the confirmed configs, then the trials that were not measured again."""
    confirmed = {_identity(confirmation.config) for confirmation in confirmations}
    standing = [confirmation for confirmation in confirmations if confirmation.measurement.latency_s is not None]
    others = [trial for trial in fastest(trials, worth) if _identity(trial.config) not in confirmed]
    return [*sorted(standing, key=lambda confirmation: confirmation.rank), *others]


def diverse(ranking: Sequence[Trial | Confirmation], knobs: Sequence[str], n: int) -> list[Trial | Confirmation]:
    """Returns n entries of a ranking: first the best of each combination of values of `knobs`, then the rest in order.

    Args:
        ranking: configs, the best first.
        knobs: knob names; a config may lack some of them.
        n: number of entries; fewer where the ranking is shorter or the rest is far slower than the best.
    """
    near = [each for each in ranking if _cost_s(each.measurement) <= _FAR * _cost_s(ranking[0].measurement)]
    leaders: dict[str, Trial | Confirmation] = {}
    for each in near:
        leaders.setdefault(canonical_json([each.config.get(name) for name in knobs]), each)
    places = {id(leader) for leader in leaders.values()}
    return [*leaders.values(), *(each for each in near if id(each) not in places)][:n]


def _is_tied(measurement: Measurement) -> bool:
    """Whether a config may be as fast as the fastest of its rivals."""
    return isinstance(measurement, Compared) and measurement.least_ratio is not None and measurement.least_ratio <= 1.0


def _plain(measurement: Measurement) -> Measurement:
    """Returns a measurement as it is recorded."""
    return Measurement(**{each.name: getattr(measurement, each.name) for each in fields(Measurement)})


def _holds(confirmations: Sequence[Confirmation], configs: Sequence[Config]) -> bool:
    return {_identity(config) for config in configs} <= {_identity(each.config) for each in confirmations}


def _cost_s(measurement: Measurement) -> float:
    """Returns the sort key: the latency, or infinity for a failure."""
    return math.inf if measurement.latency_s is None else measurement.latency_s


def _identity(config: Config) -> str:
    return canonical_json(dict(config))
