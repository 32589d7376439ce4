"""Problems: measurements and costs of configs, and the expected result of random search."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from anole.bench import Problem, load
from anole.bench.problem import enlarge
from anole.bench.spaces import make_space
from anole.errors import StoreError
from anole.record import Status
from anole.space import Constraint, Space, option_knob


def test_every_valid_config_has_its_own_measurement(problem: Problem) -> None:
    configs = [problem.space.config(vector) for vector in problem.space.vectors(problem.space.all_valid_indices)]
    for row, (config, measurement) in enumerate(zip(configs, problem.measure(configs), strict=True)):
        failed = row % 3 == 0
        assert measurement.status is (Status.BUILD_ERROR if failed else Status.OK)
        assert measurement.latency_s == (None if failed else 1.0 + row)
        assert problem.evaluate(config) == (math.inf if failed else measurement.latency_s)
        assert problem.runs_s(config) == [1.0, row]
    assert problem.optimum == problem.best_s == 2.0
    np.testing.assert_array_equal(problem.rows(configs), np.arange(len(configs)))


def test_an_invalid_config_costs_infinity(problem: Problem) -> None:
    assert problem.evaluate({"a": 5, "b": 16}) == math.inf


def test_a_cost_is_a_latency_over_its_worth() -> None:
    """On an accelerator with bounded area, the fastest config is not the cheapest one."""
    problem = load("vta/256-256_k3x3_s1_14x14")
    assert problem.space.valid_indices is not None
    fastest, cheapest = int(np.nanargmin(problem.latencies_s)), int(np.nanargmin(problem.costs_s))
    for row in (fastest, cheapest):
        config = problem.space.config(problem.space.vectors(problem.space.valid_indices[[row]])[0])
        with np.errstate(divide="ignore"):
            worth = problem.space.worth(config, problem.latencies_s[row])
            assert problem.costs_s[row] == np.divide(problem.latencies_s[row], worth)
    assert problem.costs_s[cheapest] == problem.optimum < problem.costs_s[fastest]


def test_the_gap_of_the_best_so_far_is_relative_to_the_optimum(problem: Problem) -> None:
    configs = [
        problem.space.config(problem.space.vectors([index])[0])
        for index in problem.space.all_valid_indices[[0, 7, 4, 5]]
    ]
    assert problem.gaps(configs).tolist() == [math.inf, 3.0, 1.5, 1.5]


def test_the_expected_random_cost_is_that_of_simulated_searches(problem: Problem) -> None:
    rng, costs_s = np.random.default_rng(0), problem.latencies_s
    median_s = np.nanmedian(costs_s)
    filled_s = np.where(np.isnan(costs_s), median_s, np.minimum(costs_s, median_s))
    orders = rng.permuted(np.tile(filled_s, (20_000, 1)), axis=1)
    simulated_s = np.minimum.accumulate(orders, axis=1).mean(axis=0)
    np.testing.assert_allclose(problem.random_curve(len(costs_s)), simulated_s, rtol=0.02)
    assert problem.expected_random(len(costs_s)) == pytest.approx(problem.optimum)
    assert problem.expected_random(1) == pytest.approx(filled_s.mean())
    assert problem.random_curve(40)[-1] == pytest.approx(problem.optimum), "no more trials than configs"


def test_random_search_draws_each_program_once() -> None:
    knobs = [option_knob("a", [1, 2, 3]), option_knob("b", [1, 2])]
    space = Space(knobs, programs=lambda columns: np.minimum(columns["a"], 2)[:, None])
    problem = Problem("equal", space, np.array([2.0, 6.0, 6.0, 9.0, 9.0, 9.0]))
    # The programs cost 2 and 6; a search begins at their median, 4.
    assert problem.random_curve(3).tolist() == [3.0, 2.0, 2.0]


def test_an_opened_problem_has_the_same_latencies_and_fails_where_the_constraint_held() -> None:
    def knobs(*values: int) -> list[Any]:
        return [option_knob("a", [1, 3]), option_knob("b", list(values))]

    odd = Constraint("too much", lambda columns: columns["a"] + columns["b"] < 8)
    small, large = Space(knobs(2, 4, 6), [odd]), Space(knobs(1, 2, 4, 6, 8))
    problem = Problem("small", small, np.arange(1.0, 1 + len(small.all_valid_indices)))
    whole = enlarge(problem, "large", large)
    found = {}
    for config in map(large.config, large.vectors(np.arange(large.size))):
        (measurement,) = whole.measure([config])
        found[config["a"], config["b"]] = measurement.latency_s
    for (a, b), latency_s in found.items():
        is_known = b in (2, 4, 6) and a + b < 8
        expected = next(problem.measure([{"a": a, "b": b}])).latency_s if is_known else None
        assert latency_s == expected
    assert whole.optimum == problem.optimum == 1.0


def test_a_space_without_an_end_is_no_problem() -> None:
    space = make_space({name: range(16) for name in "abcdefg"})
    with pytest.raises(StoreError, match="a space of 268435456 configs is too large for a table"):
        _ = Problem("large", space, np.ones(1)).costs_s
