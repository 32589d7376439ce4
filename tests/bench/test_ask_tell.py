"""Ask and tell: replays, Anole's tuners on spaces of others, and objectives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from anole.bench import Problem, Tuner
from anole.bench.ask_tell import BudgetSpentError, Objective, replay
from anole.errors import ConfigError
from anole.search.presets import read_tuner
from anole.search.state import Subject
from anole.search.watch import Watch
from anole.space import Space, option_knob
from anole.testing.formulas import bowl
from anole.testing.in_memory import tune_in_memory

RANDOM = read_tuner({"preset": "random", "batch": 5})


def test_a_replay_tunes_on_the_problem(problem: Problem) -> None:
    first, again, other = (replay(problem, RANDOM, 12, seed) for seed in (0, 0, 1))
    assert [trial.number for trial in first.trials] == list(range(12))
    assert sorted(first.iterations) == [0, 1, 2] and all("search_s" in log for log in first.iterations.values())
    assert [trial.config for trial in first.trials] == [trial.config for trial in again.trials]
    assert [trial.config for trial in first.trials] != [trial.config for trial in other.trials]


def test_a_whole_problem_can_be_searched(problem: Problem) -> None:
    trials = replay(problem, RANDOM, 10_000, 0).trials
    assert len(trials) == len(problem.latencies_s)
    assert min(trial.measurement.latency_s or np.inf for trial in trials) == problem.best_s == 2.0
    found = replay(problem, RANDOM, 10_000, 0, ends_at_the_optimum=True).trials
    assert found[-1].measurement.latency_s == 2.0
    assert [each.config for each in trials[: len(found)]] == [each.config for each in found]


@pytest.mark.parametrize("preset", ["random", "anole"])
def test_ask_and_tell_is_the_search_of_tune_in_memory(preset: str) -> None:
    formula, trials = bowl(), list[Any]()
    subject, settings = Subject(formula.space, formula.flop, "task"), read_tuner({"preset": preset})
    tune_in_memory(subject, settings, formula.measure, 70, seed=7, watch=Watch(trial=trials.append))
    tuner, rng = Tuner(subject, settings, seed=7), np.random.default_rng(0)
    while len(tuner.search.trials) < len(trials):
        asked = tuner.ask()
        assert asked == tuner.ask() and len(asked) > 0
        shuffled = [asked[at] for at in rng.permutation(len(asked))]
        tuner.tell(shuffled, [each.latency_s for each in formula.measure(shuffled)])
    assert [each.config for each in tuner.search.trials[: len(trials)]] == [each.config for each in trials]


def test_a_tuner_searches_a_space_of_plain_values() -> None:
    values: dict[str, Any] = {"x": list(range(40)), "y": [2**n for n in range(8)], "layout": ["row", "column"]}
    restrictions = ["x * y <= 1024 or layout == 'row'", lambda config: config["x"] != 13]
    tuner = Tuner(values, "anole", seed=1, restrictions=restrictions)
    best_s, tried = math.inf, set[str]()
    while len(tried) < 96:
        configs = tuner.ask()
        assert all(each["x"] != 13 and (each["x"] * each["y"] <= 1024 or each["layout"] == "row") for each in configs)
        costs_s = [1e-3 * (1 + abs(each["x"] - 20) + abs(each["y"] - 32)) for each in configs]
        tuner.tell(configs, [None if each["layout"] == "row" else s for each, s in zip(configs, costs_s, strict=True)])
        tried |= {str(each) for each in configs}
        best_s = min([best_s, *(s for each, s in zip(configs, costs_s, strict=True) if each["layout"] == "column")])
    assert best_s == pytest.approx(1e-3)
    assert len(tried) == len(tuner.search.trials)
    assert {each.measurement.latency_s is None for each in tuner.search.trials}


def test_only_asked_configs_can_be_told() -> None:
    tuner = Tuner({"x": list(range(30))}, "random")
    with pytest.raises(ConfigError, match="was not asked for"):
        tuner.tell([{"x": 1}], [1.0])
    first, *_ = tuner.ask()
    tuner.tell([first], [1.0])
    with pytest.raises(ConfigError, match="or has a latency already"):
        tuner.tell([first], [1.0])


def test_an_objective_counts_valid_programs_once_and_ends(problem: Problem) -> None:
    objective = Objective(problem, 3)
    invalid, failing, good = {"a": 5, "b": 16}, *(problem.space.config(v) for v in problem.space.vectors([0, 1]))
    assert [objective(each) for each in (invalid, failing, failing, good)] == [math.inf, math.inf, math.inf, 2.0]
    assert objective.costs_s == [math.inf, 2.0] and objective.configs == [failing, good] and not objective.done
    assert objective(problem.space.config(problem.space.vectors([2])[0])) == 3.0 and objective.done
    with pytest.raises(BudgetSpentError, match="small: all 3 trials are spent"):
        objective(good)
    with pytest.raises(ConfigError):
        Objective(problem, 3)({"a": 0})


def test_an_objective_ends_if_nothing_new_is_asked(problem: Problem) -> None:
    objective, calls = Objective(problem, 2), 0
    while not objective.done:
        objective({"a": 0, "b": 1})
        calls += 1
    assert calls == 200 and len(objective.costs_s) == 1


def test_equal_programs_are_one_trial() -> None:
    knobs = [option_knob("a", [1, 2, 3]), option_knob("b", [1, 2])]
    space = Space(knobs, programs=lambda columns: np.minimum(columns["a"], 2)[:, None])
    objective = Objective(Problem("equal", space, np.arange(1.0, 7.0)), 10)
    assert [objective(space.config(vector)) for vector in space.vectors([0, 3, 3, 0, 5])] == [1, 4, 4, 1, 6]
    assert objective.costs_s == [1, 6] and objective.done
