"""How a search goes on: rank correlations against SciPy, and what the next trials are expected to save."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from anole.search.progress import expected_gain, rank_correlation

FIGURES = st.lists(st.integers(0, 6), min_size=4, max_size=20)


@given(FIGURES, st.randoms(use_true_random=False))
def test_it_is_spearmans(figures: list[int], random: object) -> None:
    others = list(figures)
    random.shuffle(others)
    one, other = np.array(figures, dtype=float), np.array(others, dtype=float)
    found = rank_correlation(one, other)
    if len(set(figures)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearmanr(one, other).statistic)


def test_few_figures_tell_nothing() -> None:
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])) is None


speeds = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=80).map(np.array)


@given(speeds, st.integers(1, 64))
def test_a_gain_is_a_share_that_grows_with_what_is_tried_next(gflops, n_next):
    assert 0.0 <= expected_gain(gflops, n_next) <= expected_gain(gflops, n_next + 1) <= 1.0


@given(speeds, st.floats(0.01, 100), st.randoms())
def test_a_gain_depends_neither_on_the_unit_nor_on_the_order(gflops, unit, random):
    shuffled = gflops.copy()
    random.shuffle(shuffled)
    assert expected_gain(shuffled * unit, 16) == pytest.approx(expected_gain(gflops, 16), abs=1e-9)


@pytest.mark.parametrize(("draw", "most"), [("exponential", 1.3), ("normal", 2.2), ("uniform", 6.0)])
@pytest.mark.parametrize("n", [16, 64, 256])
def test_it_is_what_random_search_gains_in_the_mean_or_more_where_speed_has_a_bound(draw, most, n):
    """In a thousand random searches, whose speeds' logarithms are drawn from three distributions."""
    rng = np.random.default_rng(0)
    expected, found = [], []
    for _ in range(1000):
        gflops = np.exp(0.1 * getattr(rng, draw)(size=n + 16))
        expected.append(expected_gain(gflops[:n], 16))
        found.append(1 - gflops[:n].max() / gflops.max())
    assert 0.8 < np.mean(expected) / np.mean(found) < most


def test_a_search_of_equally_fast_configs_ends_however_they_are_measured():
    """After 64 trials, the noise of means of three runs that are 3 % apart promises less than 1 % by itself."""
    rng = np.random.default_rng(0)
    gains = [expected_gain(np.exp(rng.normal(0, 0.03 / np.sqrt(3), size=64)), 16) for _ in range(200)]
    assert np.quantile(gains, 0.95) < 0.01


def test_nothing_is_known_of_few_trials_and_hope_dwindles_with_failures():
    assert expected_gain(np.empty(0), 16) == expected_gain(np.full(8, 5.0), 16) == 1.0
    assert [expected_gain(np.zeros(n), 16) for n in (16, 32, 64)] == [0.5, 0.25, 0.0625]
    assert expected_gain(np.array([0.0] * 32 + [5.0] * 8), 16) == 0.25


def test_one_trial_far_ahead_promises_more_than_many_that_are_alike():
    alike, ahead = np.full(32, 100.0), np.array([150.0, *[100.0] * 31])
    assert expected_gain(alike, 16) == 0.0 < expected_gain(ahead, 16)
