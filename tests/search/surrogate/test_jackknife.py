"""The infinitesimal jackknife, against its formula, example by example and tree by tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.surrogate.jackknife import Jackknife

from ...examples import examples


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
