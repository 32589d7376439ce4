"""Merit trees: they begin from a merit that is a speed, correct it, and are plain boosted trees elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anole.record import Measurement, Status
from anole.search.presets import PRESETS
from anole.search.roles import Examples, History
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.search.surrogate.merit_trees import MeritTrees


@pytest.fixture
def counted(formula):
    """Returns a formula's space with a merit that leaves out a factor of four and the order of the loops."""
    bowl = formula("bowl")

    def speed(columns):
        any_order = columns | {"order": np.full(len(columns["order"]), "kernel_first")}
        return 4 / np.nan_to_num(bowl.cost_s(any_order), nan=1.0)

    return replace(bowl.space, merit=speed, merit_is_speed=True)


def history_of(space, bowl, n):
    history = History(space, bowl.flop)
    vectors = space.sample(n, np.random.default_rng(0)) if n else space.vectors([])
    history.add(vectors, list(bowl.measure([space.config(vector) for vector in vectors])))
    return history


def misses(scores, truth):
    return np.abs(scores - truth)[truth > 0].mean()


def test_before_the_first_trial_the_merit_is_the_score(counted):
    surrogate = MeritTrees().start(counted)
    vectors = counted.sample(200, np.random.default_rng(1))
    merits = counted.merit(counted.columns(vectors))
    assert surrogate.fitted
    np.testing.assert_array_equal(np.argsort(surrogate.score(vectors)), np.argsort(merits))
    assert 0.5 < surrogate.score(vectors).max() <= 1.5


def test_trials_correct_what_the_merit_leaves_out(formula, counted):
    bowl, surrogate, plain = formula("bowl"), MeritTrees().start(counted), BoostedTrees().start(counted)
    unseen = bowl.history(400, seed=1)
    history = history_of(counted, bowl, 48)
    truth = unseen.gflops / history.best_gflops
    surrogate.fit(history)
    plain.fit(history)
    merits = counted.merit(counted.columns(unseen.vectors)) * bowl.flop / 1e9 / 4 / history.best_gflops
    found = misses(surrogate.score(unseen.vectors), truth)
    assert found < 0.8 * misses(merits, truth) and found < 0.8 * misses(plain.score(unseen.vectors), truth)


def test_failures_alone_leave_the_merit_as_it_was(counted):
    surrogate, vectors = MeritTrees().start(counted), counted.sample(10, np.random.default_rng(1))
    before = surrogate.score(vectors)
    history = History(counted, 1)
    history.add(vectors, [Measurement(Status.BUILD_ERROR)] * 10)
    surrogate.fit(history)
    np.testing.assert_array_equal(surrogate.score(vectors), before)


def test_other_tasks_teach_nothing_to_a_surrogate_that_knows_the_space(formula, counted):
    settings = PRESETS["anole"]
    assert settings.learns_from_others(formula("bowl").space) and not settings.learns_from_others(counted)
    surrogate = MeritTrees().start(counted)
    vectors = counted.sample(10, np.random.default_rng(1))
    before = surrogate.score(vectors)
    surrogate.fit(History(counted, 1, Examples(counted.features(vectors), np.linspace(0, 1, 10))))
    np.testing.assert_array_equal(surrogate.score(vectors), before)


@pytest.mark.parametrize("merit", [None, lambda columns: -columns["unroll"]])
def test_where_the_merit_is_no_speed_they_are_plain_boosted_trees(formula, merit):
    bowl = formula("bowl")
    history = history_of(replace(bowl.space, merit=merit), bowl, 64)
    surrogate, plain = MeritTrees().start(history.space), BoostedTrees().start(history.space)
    assert not surrogate.fitted
    for each in (surrogate, plain):
        each.fit(history)
    np.testing.assert_array_equal(surrogate.score(history.vectors), plain.score(history.vectors))
