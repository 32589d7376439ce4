"""What every surrogate owes the loop."""

from __future__ import annotations

import numpy as np
import pytest

from anole.record import Measurement, Status
from anole.search.roles import History
from anole.search.surrogate import SURROGATES
from anole.space import Space, option_knob


@pytest.fixture(params=SURROGATES)
def surrogate_settings(request):
    return SURROGATES[request.param]()


def ranks(values):
    return np.argsort(np.argsort(values))


def test_knows_nothing_before_the_first_fit(surrogate_settings, formula):
    space = formula("handful").space
    surrogate = surrogate_settings.start(space)
    assert not surrogate.fitted
    np.testing.assert_array_equal(surrogate.score(space.vectors([0, 1])), [0, 0])
    surrogate.fit(History(space, 1))
    assert not surrogate.fitted


def test_learns_nothing_from_failures_alone(surrogate_settings, formula):
    space = formula("bowl").space
    history = History(space, 1)
    vectors = space.sample(10, np.random.default_rng(0))
    history.add(vectors, [Measurement(Status.BUILD_ERROR)] * 10)
    surrogate = surrogate_settings.start(space)
    surrogate.fit(history)
    assert not surrogate.fitted
    assert surrogate.score(vectors).shape == (10,)


def test_once_fitted_it_ranks_configs_it_has_not_seen(surrogate_settings, formula):
    bowl = formula("bowl")
    surrogate = surrogate_settings.start(bowl.space)
    surrogate.fit(bowl.history(400))
    unseen = bowl.history(400, seed=1)
    scores = surrogate.score(unseen.vectors)
    assert scores.shape == (400,) and scores.dtype == np.float64 and np.isfinite(scores).all()
    if surrogate.fitted:
        favourites = np.argsort(scores)[-40:]
        # Who knows of its doubt may favour what is uncertain; chance is a half.
        least = 0.65 if surrogate.spread(unseen.vectors).any() else 0.85
        assert ranks(unseen.scores)[favourites].mean() > least * 400
        assert 0.3 < scores.max() < 1.5


def test_same_history_same_scores_one_by_one_or_together(surrogate_settings, formula):
    history = formula("bowl").history(100)
    first, second = surrogate_settings.start(history.space), surrogate_settings.start(history.space)
    first.fit(history)
    second.fit(history)
    together = first.score(history.vectors)
    np.testing.assert_array_equal(together, second.score(history.vectors))
    np.testing.assert_array_equal(together[:5], [first.score(history.vectors[row : row + 1])[0] for row in range(5)])
    assert first.score(history.vectors[:0]).shape == (0,)


def test_a_single_trial_is_enough_to_go_on(surrogate_settings, formula):
    history = formula("handful").history(1)
    surrogate = surrogate_settings.start(history.space)
    surrogate.fit(history)
    assert np.isfinite(surrogate.score(history.vectors)).all()


@pytest.mark.parametrize("number", [np.inf, "raise"])
def test_broken_features_cost_the_guidance_not_the_run(surrogate_settings, number):
    class Mistaken:
        def __init__(self, columns):
            self.n_configs = len(columns["a"])

        def features(self):
            if number == "raise":
                raise ZeroDivisionError("a template's mistake")
            return np.full((self.n_configs, 2), number, dtype=np.float32)

    space = Space([option_knob("a", list(range(20)))], describe=Mistaken)
    history = History(space, 1)
    vectors = space.vectors(range(10))
    history.add(vectors, [Measurement(Status.OK, latency_s=1.0 + index) for index in range(10)])
    surrogate = surrogate_settings.start(space)
    surrogate.fit(history)
    assert not surrogate.fitted
    np.testing.assert_array_equal(surrogate.score(vectors), np.zeros(10))
