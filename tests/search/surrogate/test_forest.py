"""The forest: its predictions, its doubt, and expected improvement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.ensemble import RandomForestRegressor

from anole.record import Measurement, Status
from anole.search.roles import Examples, History
from anole.search.surrogate.forest import Forest, Jackknife, expected_improvement
from anole.space import Space, option_knob

from ...examples import examples

MEAN = Forest(acquisition="mean")


def fitted(history, forest):
    surrogate = forest.start(history.space)
    surrogate.fit(history)
    return surrogate


def improvement(mean, std, best):
    return expected_improvement(np.array([mean]), np.array([std]), best)[0]


@settings(max_examples=examples(60), deadline=None)
@given(st.floats(-1, 2), st.floats(0.01, 1), st.floats(0, 1.5))
def test_expected_improvement_is_the_expectation(mean, std, best):
    low, high = max(best, mean - 12 * std), max(best, mean) + 12 * std
    expected, _ = quad(lambda speed: (speed - best) * norm.pdf(speed, mean, std), low, high, points=[max(mean, low)])
    assert improvement(mean, std, best) == pytest.approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(("mean", "expected"), [(0.7, 0.0), (1.0, 0.0), (1.25, 0.25)])
def test_without_doubt_it_is_the_gain(mean, expected):
    assert improvement(mean, 0.0, 1.0) == expected


def test_at_the_best_it_grows_with_doubt():
    assert improvement(1.0, 0.5, 1.0) == pytest.approx(0.5 / np.sqrt(2 * np.pi))
    assert improvement(1.0, 1e-9, 1.0) == pytest.approx(0.0, abs=1e-8)
    assert improvement(-40.0, 1.0, 1.0) == 0.0


def test_predictions_and_spread_are_those_of_scikit_learns_forest(formula):
    history = formula("bowl").history(200)
    unseen = history.space.sample(300, np.random.default_rng(1))
    surrogate = fitted(history, MEAN)
    reference = RandomForestRegressor(10, max_features=10, random_state=0)
    reference.fit(history.space.features(history.vectors), history.scores)
    features = history.space.features(unseen)
    np.testing.assert_allclose(surrogate.score(unseen), reference.predict(features))
    by_tree = [tree.predict(features) for tree in reference.estimators_]
    np.testing.assert_allclose(surrogate.spread(unseen), np.std(by_tree, axis=0), atol=1e-12)


def test_a_jackknifed_spread_is_that_of_scikit_learns_forest(formula):
    history = formula("bowl").history(60)
    unseen = history.space.sample(50, np.random.default_rng(1))
    surrogate = fitted(history, Forest(spread="jackknife"))
    reference = RandomForestRegressor(10, max_features=10, random_state=0)
    reference.fit(history.space.features(history.vectors), history.scores)
    counts = np.array([(drawn[:, None] == np.arange(60)).sum(axis=0) for drawn in reference.estimators_samples_])
    by_tree = np.stack([tree.predict(history.space.features(unseen)) for tree in reference.estimators_], axis=1)
    np.testing.assert_allclose(surrogate.spread(unseen) ** 2, Jackknife(counts).variance(by_tree), atol=1e-12)
    assert surrogate.spread(unseen).any()
    np.testing.assert_array_equal(surrogate.spread(unseen[:1]), surrogate.spread(unseen)[:1])


def test_the_mean_ranks_unseen_configs(formula):
    bowl = formula("bowl")
    unseen = bowl.history(512, seed=1)
    scores = fitted(bowl.history(512), MEAN).score(unseen.vectors)
    assert np.corrcoef(np.argsort(np.argsort(scores)), np.argsort(np.argsort(unseen.scores)))[0, 1] > 0.8


def test_doubts_between_slow_and_fast_where_nothing_was_measured():
    space = Space([option_knob("a", list(range(64)))])
    history = History(space, 1)
    measured = space.vectors([*range(16), *range(48, 64)])
    history.add(measured, [Measurement(Status.OK, latency_s=4.0)] * 16 + [Measurement(Status.OK, latency_s=1.0)] * 16)
    surrogate = fitted(history, Forest())
    assert surrogate.spread(space.vectors([31, 32])).max() > 0.1
    assert not surrogate.spread(measured).any()
    assert not Forest().start(space).spread(measured).any()


def test_the_more_is_measured_the_less_it_doubts(formula):
    bowl = formula("bowl")
    probes = bowl.space.sample(200, np.random.default_rng(9))
    spreads = [fitted(bowl.history(n), Forest()).spread(probes).mean() for n in (32, 1000)]
    assert 0 < spreads[1] < spreads[0]


def test_a_score_is_the_share_of_the_largest_expected_improvement(formula):
    history = formula("bowl").history(200)
    surrogate, mean = fitted(history, Forest()), fitted(history, MEAN)
    unseen = history.space.sample(500, np.random.default_rng(3))
    vectors = np.concatenate([history.vectors, unseen])
    scores = surrogate.score(vectors)
    expected = expected_improvement(mean.score(vectors), mean.spread(vectors), 1.0)
    ratios = scores[expected > 1e-9] / expected[expected > 1e-9]
    np.testing.assert_allclose(ratios, ratios[0])
    assert 0 <= scores.min() < 0.01 and 0.1 < scores[:200].max() <= 1.0 + 1e-12


def test_its_mean_ranks_configs_it_has_not_seen(formula):
    bowl = formula("bowl")
    surrogate, unseen = fitted(bowl.history(400), MEAN), bowl.history(400, seed=1)
    ranks = np.argsort(np.argsort(unseen.scores))
    assert ranks[np.argsort(surrogate.score(unseen.vectors))[-40:]].mean() > 0.85 * 400


def test_no_improvement_anywhere_scores_nothing():
    space = Space([option_knob("a", list(range(20)))])
    history = History(space, 1)
    history.add(space.vectors(range(10)), [Measurement(Status.OK, latency_s=1.0)] * 10)
    surrogate = fitted(history, Forest())
    assert surrogate.fitted and not surrogate.score(space.vectors(range(20))).any()


def test_learns_from_the_prior(formula):
    bowl = formula("bowl")
    space, vectors = bowl.space, bowl.space.sample(60, np.random.default_rng(0))
    scores = np.linspace(0, 1, 60)
    surrogate = fitted(History(space, bowl.flop, Examples(space.features(vectors), scores)), MEAN)
    assert np.corrcoef(surrogate.score(vectors), scores)[0, 1] > 0.9


def directly(counts, predicted):
    """Returns the variance of one config's prediction, by Wager, Hastie and Efron's equations 5 and 7."""
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
def test_it_is_the_papers_formula(n_trees, n_examples, n_configs, seed):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n_examples, np.full(n_examples, 1 / n_examples), size=n_trees)
    predicted = rng.normal(size=(n_configs, n_trees))
    variances = Jackknife(counts).variance(predicted)
    np.testing.assert_allclose(variances, [directly(counts, each) for each in predicted], atol=1e-12)


def test_of_a_mean_it_is_what_is_known():
    """Trees that predict the mean of what they drew: the variance is that of a mean, s^2 / n."""
    rng = np.random.default_rng(0)
    values, n_trees = rng.normal(size=40), 5000
    counts = rng.multinomial(40, np.full(40, 1 / 40), size=n_trees)
    predicted = (counts @ values / 40)[None]
    assert Jackknife(counts).variance(predicted)[0] == pytest.approx(values.var() / 40, rel=0.1)


def test_trees_that_agree_leave_no_doubt():
    counts = np.random.default_rng(0).multinomial(9, np.full(9, 1 / 9), size=4)
    assert Jackknife(counts).variance(np.full((3, 4), 0.7)).tolist() == [0.0, 0.0, 0.0]
    assert Jackknife(counts).variance(np.empty((0, 4))).shape == (0,)
