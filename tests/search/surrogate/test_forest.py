"""The random forest: its predictions, its spread, and expected improvement."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.ensemble import RandomForestRegressor

from anole.search.roles import Examples, History
from anole.search.surrogate.forest import Forest, expected_improvement

from ...examples import examples
from ..conftest import fit, history_of, ranks, space_of

MEAN = Forest(acquisition="mean")
LINE = space_of([64])


def scalar_improvement(mean, std, best):
    return expected_improvement(np.array([mean]), np.array([std]), best)[0]


def reference(history):
    """Return scikit-learn's forest on the same examples."""
    forest = RandomForestRegressor(10, max_features=10, random_state=0)
    return forest.fit(history.space.features(history.vectors), history.scores)


@settings(max_examples=examples(60), deadline=None)
@given(st.floats(-1, 2), st.floats(0.01, 1), st.floats(0, 1.5))
def test_expected_improvement_equals_the_integral(mean, std, best):
    low, high = max(best, mean - 12 * std), max(best, mean) + 12 * std
    expected, _ = quad(lambda speed: (speed - best) * norm.pdf(speed, mean, std), low, high, points=[max(mean, low)])
    assert scalar_improvement(mean, std, best) == pytest.approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(
    ("mean", "std", "expected"),
    [
        (0.7, 0.0, 0.0),
        (1.0, 0.0, 0.0),
        (1.25, 0.0, 0.25),
        (1.0, 0.5, 0.5 / np.sqrt(2 * np.pi)),
        (1.0, 1e-9, 0.0),
        (-40.0, 1.0, 0.0),
    ],
)
def test_expected_improvement_of_special_cases(mean, std, expected):
    assert scalar_improvement(mean, std, 1.0) == pytest.approx(expected, abs=1e-8)


def test_predictions_and_spread_match_scikit_learn(bowl):
    history = bowl.history(200)
    unseen = history.space.sample(300, np.random.default_rng(1))
    surrogate, forest, features = fit(MEAN, history), reference(history), history.space.features(unseen)
    np.testing.assert_allclose(surrogate.score(unseen), forest.predict(features))
    by_tree = [tree.predict(features) for tree in forest.estimators_]
    np.testing.assert_allclose(surrogate.spread(unseen), np.std(by_tree, axis=0), atol=1e-12)


def test_the_spread_is_large_between_measured_regions():
    vectors = LINE.vectors([*range(16), *range(48, 64)])
    surrogate = fit(Forest(), history_of(LINE, vectors, [4.0] * 16 + [1.0] * 16))
    assert surrogate.spread(LINE.vectors([31, 32])).max() > 0.1
    assert not surrogate.spread(vectors).any()
    assert not Forest().start(LINE).spread(vectors).any()


def test_more_measurements_reduce_the_spread(bowl):
    probes = bowl.space.sample(200, np.random.default_rng(9))
    few, many = (fit(Forest(), bowl.history(n)).spread(probes).mean() for n in (32, 1000))
    assert 0 < many < few


def test_scores_are_relative_to_the_largest_expected_improvement(bowl):
    history = bowl.history(200)
    surrogate, mean = fit(Forest(), history), fit(MEAN, history)
    unseen = history.space.sample(500, np.random.default_rng(3))
    vectors = np.concatenate([history.vectors, unseen])
    scores = surrogate.score(vectors)
    expected = expected_improvement(mean.score(vectors), mean.spread(vectors), 1.0)
    ratios = scores[expected > 1e-9] / expected[expected > 1e-9]
    np.testing.assert_allclose(ratios, ratios[0])
    assert 0 <= scores.min() < 0.01 and 0.1 < scores[:200].max() <= 1.0 + 1e-12


def test_the_mean_ranks_unseen_configs(bowl):
    unseen = bowl.history(512, seed=1)
    scores = fit(MEAN, bowl.history(512)).score(unseen.vectors)
    assert np.corrcoef(ranks(scores), ranks(unseen.scores))[0, 1] > 0.8
    assert ranks(unseen.scores)[np.argsort(scores)[-40:]].mean() > 0.85 * 512


def test_scores_are_zero_if_no_improvement_is_expected():
    surrogate = fit(Forest(), history_of(LINE, LINE.vectors(range(10))))
    assert surrogate.fitted and not surrogate.score(LINE.vectors(range(20))).any()


def test_learns_from_the_prior(bowl):
    space, vectors = bowl.space, bowl.space.sample(60, np.random.default_rng(0))
    scores = np.linspace(0, 1, 60)
    surrogate = fit(MEAN, History(space, bowl.flop, Examples(space.features(vectors), scores)))
    assert np.corrcoef(surrogate.score(vectors), scores)[0, 1] > 0.9
