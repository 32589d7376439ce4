"""Every preset that learns is better than its own twin that does not, where learning matters.

What an explorer learns matters on a ridge that random walks leave, with a surrogate that knows the truth, so that
nothing else makes a difference. What a surrogate learns matters on any space; an explorer's share in it is small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from anole.search.presets import PRESETS, read_tuner
from anole.search.settings import TunerSettings
from anole.search.state import Subject
from anole.search.watch import Watch
from anole.testing.formulas import Formula, bowl, ridge
from anole.testing.in_memory import tune_in_memory
from tests.kit.oracle import Oracle
from tests.kit.quality import log_gap

EXPLORERS: Mapping[str, Mapping[str, Any]] = {
    "release": {"n_trials": 32, "explorer": {"n_steps": 250}},
    "chameleon": {"n_trials": 160, "explorer": {}},
    "dcoc": {"n_trials": 32, "explorer": {"n_steps": 250}},
}
"""Presets whose explorer learns, with a budget of two searches; of `chameleon`, whose episodes end early, eight."""

SURROGATES: Mapping[str, Any] = {
    "autotvm": {"learning_rate": 0},
    "adatune": "none",
    "anole": {"learning_rate": 0},
    "chameleon": {"learning_rate": 0},
    "release": {"learning_rate": 0},
    "dcoc": {"learning_rate": 0},
}
"""Presets whose surrogate learns, with a surrogate that does not; a forest has no learning rate."""

FEW, MANY = range(1), range(4)
MARGIN = 0.15
"""By how much learning must pay, in natural logarithms of the cost."""


def test_every_preset_that_learns_is_here() -> None:
    assert {name for name, settings in PRESETS.items() if hasattr(settings.explorer, "learning_rate")} == set(EXPLORERS)
    assert {name for name, settings in PRESETS.items() if settings.surrogate.name != "none"} == set(SURROGATES)


def costs_s(formula: Formula, settings: TunerSettings, n_trials: int, seed: int) -> list[float]:
    found: list[float] = []
    watch = Watch(lambda *_: None, lambda trial: found.append(trial.measurement.latency_s or np.nan))
    tune_in_memory(
        Subject(formula.space, formula.flop, "task"), settings, formula.measure, n_trials, seed=seed, watch=watch
    )
    return found


def explorer_pays(preset: str, seeds: range) -> float:
    formula, own = ridge(), EXPLORERS[preset]
    settings = replace(read_tuner({"preset": preset, "explorer": own["explorer"]}), surrogate=Oracle(formula, 1e-3))
    twin = replace(settings, explorer=replace(settings.explorer, learning_rate=0.0))
    gaps = [
        [log_gap(costs_s(formula, each, own["n_trials"], seed), 1e-3, 4) for seed in seeds] for each in (settings, twin)
    ]
    return float(np.mean(gaps[1]) - np.mean(gaps[0]))


@cache
def bowl_and_optimum() -> tuple[Formula, float]:
    formula = bowl()
    return formula, formula.optimum_s


def surrogate_pays(preset: str, seeds: range) -> float:
    formula, best_s = bowl_and_optimum()
    settings = read_tuner({"preset": preset, "batch": 16})
    twin = read_tuner({"preset": preset, "batch": 16, "surrogate": SURROGATES[preset]})
    gaps = [[log_gap(costs_s(formula, each, 64, seed), best_s, 16) for seed in seeds] for each in (settings, twin)]
    return float(np.mean(gaps[1]) - np.mean(gaps[0]))


@pytest.mark.guard
@pytest.mark.parametrize("preset", EXPLORERS)
def test_what_an_explorer_learns_pays(preset: str) -> None:
    assert explorer_pays(preset, FEW) > MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("preset", EXPLORERS)
def test_what_an_explorer_learns_pays_on_the_mean_of_many_seeds(preset: str) -> None:
    assert explorer_pays(preset, MANY) > MARGIN


@pytest.mark.examples(1)
@pytest.mark.parametrize("preset", [name for name in SURROGATES if name not in EXPLORERS])
def test_what_a_surrogate_learns_pays(preset: str) -> None:
    assert surrogate_pays(preset, FEW) > MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("preset", SURROGATES)
def test_what_a_surrogate_learns_pays_on_the_mean_of_many_seeds(preset: str) -> None:
    assert surrogate_pays(preset, MANY) > MARGIN
