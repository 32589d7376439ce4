"""The random forest: its predictions, its spread, and expected improvement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.ensemble import RandomForestRegressor

from anole.search.roles import Examples, History
from anole.search.surrogate.forest import Forest, Jackknife, expected_improvement

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


def test_the_jackknife_spread_matches_scikit_learn(bowl):
    history = bowl.history(60)
    unseen = history.space.sample(50, np.random.default_rng(1))
    surrogate, forest = fit(Forest(spread="jackknife"), history), reference(history)
    counts = np.array([(drawn[:, None] == np.arange(60)).sum(axis=0) for drawn in forest.estimators_samples_])
    by_tree = np.stack([tree.predict(history.space.features(unseen)) for tree in forest.estimators_], axis=1)
    np.testing.assert_allclose(surrogate.spread(unseen) ** 2, Jackknife(counts).variance(by_tree), atol=1e-12)
    assert surrogate.spread(unseen).any()
    np.testing.assert_array_equal(surrogate.spread(unseen[:1]), surrogate.spread(unseen)[:1])


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


def by_definition(counts, predicted):
    """Return the variance of one config's prediction, by Wager, Hastie and Efron's equations 5 and 7."""
    n_trees, n_examples = counts.shape
    mean = sum(predicted) / n_trees
    total = 0.0
    for example in range(n_examples):
        covariance = sum((counts[tree, example] - 1) * (predicted[tree] - mean) for tree in range(n_trees)) / n_trees
        total += covariance**2
    of_counts = sum(np.var(counts[:, example]) for example in range(n_examples)) / n_examples
    chance = n_examples * of_counts / n_trees**2 * sum((one - mean) ** 2 for one in predicted)
    return max(0.0, total - chance)


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(1, 8), st.integers(1, 12), st.integers(1, 5), st.integers(0, 10_000))
def test_the_jackknife_variance_matches_its_definition(n_trees, n_examples, n_configs, seed):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n_examples, np.full(n_examples, 1 / n_examples), size=n_trees)
    predicted = rng.normal(size=(n_configs, n_trees))
    variances = Jackknife(counts).variance(predicted)
    np.testing.assert_allclose(variances, [by_definition(counts, each) for each in predicted], atol=1e-12)


def test_the_jackknife_variance_of_a_mean_is_known():
    """For trees that predict the mean of their samples, the variance is s^2 / n."""
    rng = np.random.default_rng(0)
    values, n_trees = rng.normal(size=40), 5000
    counts = rng.multinomial(40, np.full(40, 1 / 40), size=n_trees)
    predicted = (counts @ values / 40)[None]
    assert Jackknife(counts).variance(predicted)[0] == pytest.approx(values.var() / 40, rel=0.1)


def test_equal_predictions_have_no_variance():
    counts = np.random.default_rng(0).multinomial(9, np.full(9, 1 / 9), size=4)
    assert Jackknife(counts).variance(np.full((3, 4), 0.7)).tolist() == [0.0, 0.0, 0.0]
    assert Jackknife(counts).variance(np.empty((0, 4))).shape == (0,)
