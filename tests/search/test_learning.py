"""Every preset that learns beats its twin that does not, on problems where learning matters.

Explorers are tested on a ridge that random walks leave, with an oracle as surrogate, which excludes other effects.
Surrogates are tested on any space, where the explorer's effect is small.
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

from .conftest import run_search

EXPLORERS: Mapping[str, Mapping[str, Any]] = {
    "release": {"n_trials": 32, "explorer": {"n_steps": 250}},
    "chameleon": {"n_trials": 160, "explorer": {}},
    "dcoc": {"n_trials": 32, "batch": 16, "explorer": {"n_steps": 250, "converged_share": None}},
}
"""Presets whose explorer learns, with a budget of two searches; `chameleon`, whose episodes end early, has eight.

Episodes of `dcoc`, which also end early, take all steps here; it has two searches of 16 trials, since a batch of 64
hides the effect of learning.
"""

SURROGATES: Mapping[str, Any] = {
    "autotvm": {"learning_rate": 0},
    "adatune": "none",
    "anole": {"learning_rate": 0, "without_merit": "boosted_trees"},
    "chameleon": {"learning_rate": 0},
    "release": {"learning_rate": 0},
    "dcoc": {"learning_rate": 0},
}
"""Presets whose surrogate learns, each with a surrogate that does not; a forest has no learning rate."""

FEW_SEEDS, MANY_SEEDS = range(1), range(4)
MIN_GAIN = 0.15
"""Min gain by learning, as the difference of natural logarithms of the cost."""


def test_every_learning_preset_is_tested() -> None:
    assert {name for name, settings in PRESETS.items() if hasattr(settings.explorer, "learning_rate")} == set(EXPLORERS)
    assert {name for name, settings in PRESETS.items() if settings.surrogate.name != "none"} == set(SURROGATES)


def learning_gain(
    formula: Formula, best_s: float, own: TunerSettings, twin: TunerSettings, trials: int, n: int, seeds: range
):
    """Return the mean gain in the log gap of the n cheapest trials to the optimum, compared with the twin."""

    def gap(settings: TunerSettings, seed: int) -> float:
        found = run_search(formula, settings, trials, seed)
        return log_gap([trial.measurement.latency_s or np.nan for trial in found], best_s, n)

    return np.mean([gap(twin, seed) - gap(own, seed) for seed in seeds])


def explorer_gain(preset: str, seeds: range) -> float:
    formula, own = ridge(), EXPLORERS[preset]
    plain = {"preset": preset, **{name: own[name] for name in ("batch", "explorer") if name in own}}
    settings = replace(read_tuner(plain), surrogate=Oracle(formula, 1e-3))
    twin = replace(settings, explorer=replace(settings.explorer, learning_rate=0.0))
    return learning_gain(formula, 1e-3, settings, twin, own["n_trials"], 4, seeds)


def surrogate_gain(formula: Formula, preset: str, seeds: range) -> float:
    settings = read_tuner({"preset": preset, "batch": 16})
    twin = read_tuner({"preset": preset, "batch": 16, "surrogate": SURROGATES[preset]})
    return learning_gain(formula, formula.optimum_s, settings, twin, 192 if preset == "dcoc" else 64, 16, seeds)


@pytest.mark.guard
@pytest.mark.parametrize("preset", EXPLORERS)
def test_learning_improves_an_explorer(preset: str) -> None:
    assert explorer_gain(preset, FEW_SEEDS) > MIN_GAIN


@pytest.mark.slow
@pytest.mark.parametrize("preset", EXPLORERS)
def test_learning_improves_an_explorer_on_average(preset: str) -> None:
    assert explorer_gain(preset, MANY_SEEDS) > MIN_GAIN


@pytest.mark.examples(1)
@pytest.mark.parametrize("preset", [name for name in SURROGATES if name not in EXPLORERS])
def test_learning_improves_a_surrogate(bowl: Formula, preset: str) -> None:
    assert surrogate_gain(bowl, preset, FEW_SEEDS) > MIN_GAIN


@pytest.mark.slow
@pytest.mark.parametrize("preset", SURROGATES)
def test_learning_improves_a_surrogate_on_average(bowl: Formula, preset: str) -> None:
    # DCOC's sampler chooses among all visited configs, which hides most of the gain.
    assert surrogate_gain(bowl, preset, MANY_SEEDS) > (0.05 if preset == "dcoc" else MIN_GAIN)
