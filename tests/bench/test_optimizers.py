"""Optimizers by name: presets, optimizers of other packages if they are installed, and added ones."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from anole.bench import Objective, Problem
from anole.bench.ask_tell import replay
from anole.bench.optimizers import OptimizerError, find_optimizer
from anole.bench.spaces import make_space
from anole.search.presets import read_tuner
from anole.space import Space

OTHERS = (
    "optuna:TPESampler",
    "smac",
    "smac:RandomFacade",
    "nevergrad:NGOpt",
    "kernel_tuner:genetic_algorithm",
    "kernel_tuner:simulated_annealing",
    "kernel_tuner:random_sample",
)


@pytest.fixture(params=[(), ("x + y < 12",)], ids=["all valid", "constrained"])
def problem(request: Any) -> Problem:
    """A bowl of 160 configs with a text knob, and a knob without a choice; its slowest fifth fails."""
    values: dict[str, Any] = {"x": range(10), "y": range(8), "layout": ["row", "column"], "fixed": [7]}
    space: Space = make_space(values, request.param)
    columns = space.columns(space.vectors(space.all_valid_indices))
    costs_s = 1e-3 * (1 + (columns["x"] - 6) ** 2 + (columns["y"] - 2) ** 2 + 5 * (columns["layout"] == "row"))
    return Problem("bowl", space, np.where(costs_s > np.quantile(costs_s, 0.8), np.nan, costs_s))


@pytest.mark.parametrize("name", OTHERS)
def test_an_optimizer_spends_its_budget_repeatably(name: str, problem: Problem) -> None:
    pytest.importorskip(name.partition(":")[0], reason="pip install 'anole[bench]'")
    first, again, other = (Objective(problem, 12) for _ in range(3))
    for objective, seed in ((first, 0), (again, 0), (other, 1)):
        find_optimizer(name)(objective, seed)
        assert objective.done and len(objective.costs_s) == 12
    assert first.configs == again.configs != other.configs


def test_a_preset_searches_as_a_replay_without_ending_early(problem: Problem) -> None:
    objective = Objective(problem, 40)
    find_optimizer("random")(objective, 3)
    trials = replay(problem, read_tuner({"preset": "random"}), 40, 3).trials
    assert objective.configs == [trial.config for trial in trials]
    assert objective.costs_s == [problem.evaluate(trial.config) for trial in trials]


def _in_order(objective: Objective, seed: int) -> None:
    for vector in objective.problem.space.vectors(objective.problem.space.all_valid_indices[seed:]):
        if not objective.done:
            objective(objective.problem.space.config(vector))


def test_a_package_can_add_an_optimizer(problem: Problem) -> None:
    added = EntryPoints([EntryPoint("in_order", f"{__name__}:_in_order", "anole.optimizers")])
    objective = Objective(problem, 4)
    with patch("anole.bench.optimizers.entry_points", lambda group: added.select(group=group)):
        with patch.dict(sys.modules, {__name__: sys.modules[_in_order.__module__]}):
            find_optimizer("in_order")(objective, 2)
    assert [each["x"] for each in objective.configs] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("anoel", "unknown optimizer 'anoel'; did you mean 'anole'"),
        ("no_package:Sampler", "unknown optimizer 'no_package:Sampler'"),
    ],
)
def test_an_unknown_optimizer_is_an_error(name: str, message: str) -> None:
    with pytest.raises(OptimizerError, match=message):
        find_optimizer(name)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nevergrad", None)
    with pytest.raises(OptimizerError, match=r"nevergrad:NGOpt: import of nevergrad.*; `pip install 'anole\[bench\]'`"):
        find_optimizer("nevergrad:NGOpt")
