"""Merit trees: they begin from a merit that is a speed, correct it, and are plain boosted trees elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anole.search.presets import PRESETS
from anole.search.roles import Examples, History
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.search.surrogate.merit_trees import MeritTrees

from ..conftest import fitted, measured


@pytest.fixture
def counted(bowl):
    """A space with a merit that leaves out a factor of four and the order of the loops."""

    def speed(columns):
        any_order = columns | {"order": np.full(len(columns["order"]), "kernel_first")}
        return 4 / np.nan_to_num(bowl.cost_s(any_order), nan=1.0)

    return replace(bowl.space, merit=speed, merit_is_speed=True)


@pytest.fixture
def vectors(counted):
    return counted.sample(200, np.random.default_rng(1))


def misses(scores, truth):
    return np.abs(scores - truth)[truth > 0].mean()


def test_before_the_first_trial_the_merit_is_the_score(counted, vectors):
    surrogate, merits = MeritTrees().start(counted), counted.merit(counted.columns(vectors))
    assert surrogate.fitted
    np.testing.assert_array_equal(np.argsort(surrogate.score(vectors)), np.argsort(merits))
    assert 0.5 < surrogate.score(vectors).max() <= 1.5


def test_trials_correct_what_the_merit_leaves_out(bowl, counted):
    unseen, history = bowl.history(400, seed=1), replace(bowl, space=counted).history(48)
    truth = unseen.gflops / history.best_gflops
    merits = counted.merit(counted.columns(unseen.vectors)) * bowl.flop / 1e9 / 4 / history.best_gflops
    found = fitted(MeritTrees(), history).score(unseen.vectors)
    plain = fitted(BoostedTrees(), history).score(unseen.vectors)
    assert misses(found, truth) < 0.8 * min(misses(merits, truth), misses(plain, truth))


def test_failures_and_other_tasks_leave_the_merit_as_it_was(bowl, counted, vectors):
    settings, before = PRESETS["anole"], MeritTrees().start(counted).score(vectors)
    assert settings.learns_from_others(bowl.space) and not settings.learns_from_others(counted)
    prior = Examples(counted.features(vectors), np.linspace(0, 1, 200))
    for history in (measured(counted, vectors, [None] * 200), History(counted, 1, prior)):
        np.testing.assert_array_equal(fitted(MeritTrees(), history).score(vectors), before)


@pytest.mark.parametrize("merit", [None, lambda columns: -columns["unroll"]])
def test_where_the_merit_is_no_speed_they_are_plain_boosted_trees(bowl, merit):
    history = replace(bowl, space=replace(bowl.space, merit=merit)).history(64)
    assert not MeritTrees().start(history.space).fitted
    found = [fitted(each, history).score(history.vectors) for each in (MeritTrees(), BoostedTrees())]
    np.testing.assert_array_equal(*found)
