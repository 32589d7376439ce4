"""Every preset that learns is better than its own twin that does not, where learning matters.

What an explorer learns matters on a ridge that random walks leave, with a surrogate that knows the truth, so that
nothing else makes a difference. What a surrogate learns matters on any space; an explorer's share in it is small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anole.search.presets import PRESETS, read_tuner
from anole.search.settings import TunerSettings
from anole.testing.formulas import Formula, ridge
from kit.oracle import Oracle
from kit.quality import log_gap

from .conftest import searched

EXPLORERS: Mapping[str, Mapping[str, Any]] = {
    "release": {"n_trials": 32, "explorer": {"n_steps": 250}},
    "chameleon": {"n_trials": 160, "explorer": {}},
    "dcoc": {"n_trials": 32, "batch": 16, "explorer": {"n_steps": 250, "converged_share": None}},
}
"""Presets whose explorer learns, with a budget of two searches; of `chameleon`, whose episodes end early, eight.

Episodes of `dcoc`, which end as early, take all steps here, and two searches of 16 trials: a batch of 64 hides what
they learned.
"""

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


def pays(formula: Formula, best_s: float, own: TunerSettings, twin: TunerSettings, trials: int, n: int, seeds: range):
    """Return how much nearer to the best the n cheapest trials of searches come than those of their twins."""

    def gap(settings: TunerSettings, seed: int) -> float:
        found = searched(formula, settings, trials, seed)
        return log_gap([trial.measurement.latency_s or np.nan for trial in found], best_s, n)

    return np.mean([gap(twin, seed) - gap(own, seed) for seed in seeds])


def explorer_pays(preset: str, seeds: range) -> float:
    formula, own = ridge(), EXPLORERS[preset]
    plain = {"preset": preset, **{name: own[name] for name in ("batch", "explorer") if name in own}}
    settings = replace(read_tuner(plain), surrogate=Oracle(formula, 1e-3))
    twin = replace(settings, explorer=replace(settings.explorer, learning_rate=0.0))
    return pays(formula, 1e-3, settings, twin, own["n_trials"], 4, seeds)


def surrogate_pays(formula: Formula, preset: str, seeds: range) -> float:
    settings = read_tuner({"preset": preset, "batch": 16})
    twin = read_tuner({"preset": preset, "batch": 16, "surrogate": SURROGATES[preset]})
    return pays(formula, formula.optimum_s, settings, twin, 64, 16, seeds)


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
def test_what_a_surrogate_learns_pays(bowl: Formula, preset: str) -> None:
    assert surrogate_pays(bowl, preset, FEW) > MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("preset", SURROGATES)
def test_what_a_surrogate_learns_pays_on_the_mean_of_many_seeds(bowl: Formula, preset: str) -> None:
    assert surrogate_pays(bowl, preset, MANY) > MARGIN
