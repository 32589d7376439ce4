"""Merit trees: they correct a merit that is a speed, and leave a space without merit to a Gaussian process."""

from dataclasses import replace

import numpy as np
import pytest

from anole.search.presets import PRESETS
from anole.search.roles import Examples, History
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.search.surrogate.gaussian_process import GaussianProcess
from anole.search.surrogate.merit_trees import MeritTrees

from ..conftest import fit, history_of


@pytest.fixture
def analytical(bowl):
    """A space whose merit ignores a factor of four and the order of the loops."""

    def speed(columns):
        any_order = columns | {"order": np.full(len(columns["order"]), "kernel_first")}
        return 4 / np.nan_to_num(bowl.cost_s(any_order), nan=1.0)

    return replace(bowl.space, merit=speed, merit_is_speed=True)


@pytest.fixture
def vectors(analytical):
    return analytical.sample(200, np.random.default_rng(1))


def mean_error(scores, truth):
    return np.abs(scores - truth)[truth > 0].mean()


def test_before_the_first_trial_scores_follow_the_merit(analytical, vectors):
    surrogate, merits = MeritTrees().start(analytical), analytical.merit(analytical.columns(vectors))
    assert surrogate.fitted
    np.testing.assert_array_equal(np.argsort(surrogate.score(vectors)), np.argsort(merits))
    assert 0.5 < surrogate.score(vectors).max() <= 1.5


def test_trials_correct_the_errors_of_the_merit(bowl, analytical):
    unseen, history = bowl.history(400, seed=1), replace(bowl, space=analytical).history(48)
    truth = unseen.gflops / history.best_gflops
    merits = analytical.merit(analytical.columns(unseen.vectors)) * bowl.flop / 1e9 / 4 / history.best_gflops
    found = fit(MeritTrees(), history).score(unseen.vectors)
    plain = fit(BoostedTrees(), history).score(unseen.vectors)
    assert mean_error(found, truth) < 0.8 * min(mean_error(merits, truth), mean_error(plain, truth))


def test_failures_and_other_tasks_do_not_change_the_scores(bowl, analytical, vectors):
    settings, before = PRESETS["anole"], MeritTrees().start(analytical).score(vectors)
    assert settings.learns_from_others(bowl.space) and not settings.learns_from_others(analytical)
    prior = Examples(analytical.features(vectors), np.linspace(0, 1, 200))
    for history in (history_of(analytical, vectors, [None] * 200), History(analytical, 1, prior)):
        np.testing.assert_array_equal(fit(MeritTrees(), history).score(vectors), before)


def test_with_a_merit_that_is_no_speed_they_are_plain_boosted_trees(bowl):
    history = replace(bowl, space=replace(bowl.space, merit=lambda columns: -columns["unroll"])).history(64)
    assert not MeritTrees().start(history.space).fitted
    found = [fit(each, history).score(history.vectors) for each in (MeritTrees(), BoostedTrees())]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("surrogate", [GaussianProcess(), BoostedTrees()])
def test_a_space_without_merit_has_the_surrogate_of_the_settings(bowl, surrogate):
    history = replace(bowl, space=replace(bowl.space, merit=None)).history(64)
    found = [
        fit(each, history).score(history.vectors) for each in (MeritTrees(without_merit=surrogate.name), surrogate)
    ]
    np.testing.assert_array_equal(*found)
