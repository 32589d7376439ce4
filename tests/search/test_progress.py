"""The progress of a search: rank correlations, compared with SciPy, and the expected gain of the next trials."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from anole.search.progress import expected_gain, rank_correlation

VALUES = st.lists(st.integers(0, 6), min_size=4, max_size=20)


@given(VALUES, st.randoms(use_true_random=False))
def test_the_rank_correlation_is_spearmans(values: list[int], random: object) -> None:
    others = list(values)
    random.shuffle(others)
    one, other = np.array(values, dtype=float), np.array(others, dtype=float)
    found = rank_correlation(one, other)
    if len(set(values)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearmanr(one, other).statistic)


def test_few_values_have_no_rank_correlation() -> None:
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])) is None


speeds = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=80).map(np.array)


@given(speeds, st.integers(1, 64))
def test_the_gain_is_a_share_that_grows_with_the_next_trials(gflops, n_next):
    assert 0.0 <= expected_gain(gflops, n_next) <= expected_gain(gflops, n_next + 1) <= 1.0


@given(speeds, st.floats(0.01, 100), st.randoms())
def test_the_gain_depends_on_neither_unit_nor_order(gflops, unit, random):
    shuffled = gflops.copy()
    random.shuffle(shuffled)
    assert expected_gain(shuffled * unit, 16) == pytest.approx(expected_gain(gflops, 16), abs=1e-9)


@pytest.mark.parametrize(("draw", "max_ratio"), [("exponential", 1.3), ("normal", 2.2), ("uniform", 6.0)])
@pytest.mark.parametrize("n", [16, 64, 256])
def test_the_gain_matches_random_search_or_exceeds_it_for_bounded_speeds(draw, max_ratio, n):
    """The logarithms of speeds are sampled from three distributions, in a thousand random searches each."""
    rng = np.random.default_rng(0)
    expected, found = [], []
    for _ in range(1000):
        gflops = np.exp(0.1 * getattr(rng, draw)(size=n + 16))
        expected.append(expected_gain(gflops[:n], 16))
        found.append(1 - gflops[:n].max() / gflops.max())
    assert 0.8 < np.mean(expected) / np.mean(found) < max_ratio


def test_noise_alone_does_not_keep_a_search_going():
    """After 64 trials, the noise of means of three runs with a deviation of 3 % promises less than 1 %."""
    rng = np.random.default_rng(0)
    gains = [expected_gain(np.exp(rng.normal(0, 0.03 / np.sqrt(3), size=64)), 16) for _ in range(200)]
    assert np.quantile(gains, 0.95) < 0.01


def test_the_gain_of_few_speeds_halves_with_each_batch_without_a_new_one():
    assert expected_gain(np.empty(0), 16) == 1.0
    assert [expected_gain(np.zeros(n), 16) for n in (16, 32, 64)] == [0.5, 0.25, 0.0625]
    assert expected_gain(np.array([0.0] * 32 + [5.0, 4.0]), 16) == 0.25
    assert expected_gain(np.full(33, 5.0), 16) == 0.25


def test_equal_speeds_count_once():
    """Nine configs with the program of the best one say nothing about the next."""
    speeds = np.linspace(10.0, 20.0, 32)
    repeated = np.concatenate([speeds[8:], np.full(8, 20.0)])
    assert expected_gain(repeated, 16) == pytest.approx(expected_gain(speeds, 16))


def test_an_outlier_promises_more_than_close_speeds():
    close = np.linspace(100.0, 100.1, 32)
    assert expected_gain(close, 16) < 0.001 < expected_gain(np.append(close[1:], 150.0), 16)
