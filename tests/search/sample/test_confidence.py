"""Confidence sampling: the sampled configs, the rejected ones, and their replacements."""

import numpy as np
import pytest

from anole.search.roles import Candidates
from anole.search.sample.confidence import Confidence, softmax

from ..conftest import choose, history_of, space_of

SPACE = space_of([10, 10])
ALL = SPACE.vectors(range(100))
"""Every config; for each knob, ten configs have the value 3."""


def pick(candidates, n, seed=0, **settings):
    return choose(Confidence(**settings), candidates, history_of(SPACE), n, seed)


def test_softmax_is_numerically_stable():
    np.testing.assert_allclose(softmax(np.array([1000.0, 1000.0 + np.log(3)])), [0.25, 0.75])


def test_low_values_are_replaced_by_the_most_frequent_ones():
    """Ten configs have much higher values than all others."""
    found = pick(Candidates(ALL, np.zeros(100), values=5.0 * (ALL[:, 0] == 3) + 1e-3 * ALL[:, 1]), 20)
    assert len(found) == 20 == len(np.unique(SPACE.indices(found))) and (found[:, 0] == 3).sum() == 10


def test_low_values_may_be_dropped_as_in_algorithm_2():
    """Without a config above the median in the sample, the batch is not empty."""
    values = np.arange(100.0)
    found = pick(Candidates(ALL, values), 40, replaces=False)
    assert 0 < len(found) < 40 and (SPACE.indices(found) >= 50).all()
    lowest = pick(Candidates(ALL, np.zeros(100), values=np.where(values == 0, 1.0, 0.0)), 5, replaces=False)
    assert 0 < len(lowest) <= 5


@pytest.mark.parametrize("values", [None, np.full(10, 0.3)])
def test_equal_values_replace_nothing(values):
    """Values are equal before the surrogate's first fit. The candidates are on a diagonal."""
    found = pick(Candidates(ALL[::11], np.zeros(10), values=values), 6)
    assert len(found) == 6 and (found[:, 0] == found[:, 1]).all()


def test_scores_are_used_without_values():
    high_values, high_scores = (9.0 * (ALL[:, knob] == 3) for knob in (0, 1))
    by_values, by_scores = (pick(Candidates(ALL, high_scores, values=values), 8) for values in (high_values, None))
    assert (by_values[:, 0] == 3).sum() > 4 > (by_values[:, 1] == 3).sum()
    assert (by_scores[:, 1] == 3).sum() > 4 > (by_scores[:, 0] == 3).sum()


def test_a_lower_temperature_prefers_higher_scores():
    scores = np.linspace(0, 1, 100)
    warm, cool = (
        np.mean([scores[SPACE.indices(pick(Candidates(ALL, scores), 10, seed, temperature=t))] for seed in range(20)])
        for t in (1.0, 0.05)
    )
    assert warm + 0.05 < cool
    cold = SPACE.indices(pick(Candidates(ALL, scores), 10, temperature=1e-6))
    assert len(np.unique(cold)) == 10 and 99 in cold


def test_measured_configs_are_no_replacements():
    """All candidates share one knob's value, so no other configs are synthesized."""
    vectors = SPACE.vectors([2 + 10 * b for b in range(4)])
    found = pick(Candidates(vectors, np.arange(4.0)), 4)
    assert sorted(found[:, 1].tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_of_deviation_are_scale_invariant(scale):
    values = np.linspace(0, 1, 100) ** 2

    def both(units):
        return [pick(Candidates(ALL, np.zeros(100), values=each), 10, units=units) for each in (values, scale * values)]

    np.testing.assert_array_equal(*both("deviation"))
    assert not np.array_equal(*both("score"))


@pytest.mark.parametrize(("values", "n"), [(np.zeros(100), 100), (np.where(np.arange(100) < 4, 1e3, 0.0), 4)])
def test_the_log_has_the_effective_number_of_candidates(values, n):
    candidates = Candidates(ALL, values, {"steps": 7.0})
    pick(candidates, 10, units="score")
    assert candidates.log == {"steps": 7.0, "drawn_between": pytest.approx(n)}
