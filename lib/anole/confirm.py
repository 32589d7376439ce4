"""The end of a run: the fastest configs measured once more, against each other, and what is the best of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from anole.keys import canonical_json
from anole.record import Config, Confirmation, Measurement, Trial, utc_now
from anole.roles import Measure


def fastest(trials: Iterable[Trial]) -> list[Trial]:
    """Returns the trials that worked, the fastest first, one for each config."""
    working = (trial for trial in trials if trial.measurement.latency_s is not None)
    found: dict[str, Trial] = {}
    for trial in sorted(working, key=lambda trial: _cost_s(trial.measurement)):
        found.setdefault(_identity(trial.config), trial)
    return list(found.values())


def confirm(trials: Sequence[Trial], measure: Measure, after_trials: int) -> list[Confirmation]:
    """Measures the configs of some trials again and ranks them.

    Args:
        trials: whose configs are measured.
        measure: measures them, more carefully than a trial.
        after_trials: how many trials the run has.
    """
    configs = [trial.config for trial in trials]
    measured = zip(configs, measure(configs) if configs else (), strict=True)
    ranking = sorted(measured, key=lambda pair: _cost_s(pair[1]))
    now = utc_now()
    return [
        Confirmation(config, measurement, after_trials, rank, now) for rank, (config, measurement) in enumerate(ranking)
    ]


def best(trials: Iterable[Trial], confirmations: Sequence[Confirmation]) -> Trial | Confirmation | None:
    """Returns the fastest that was confirmed, or else the fastest trial that no confirmation refuted."""
    standing = [confirmation for confirmation in confirmations if confirmation.measurement.latency_s is not None]
    if standing:
        return min(standing, key=lambda confirmation: confirmation.rank)
    refuted = {_identity(confirmation.config) for confirmation in confirmations}
    return next((trial for trial in fastest(trials) if _identity(trial.config) not in refuted), None)


def _cost_s(measurement: Measurement) -> float:
    """Returns what to sort by: the latency, a failure last of all."""
    return math.inf if measurement.latency_s is None else measurement.latency_s


def _identity(config: Config) -> str:
    return canonical_json(dict(config))
