"""Confidence sampling: who is drawn, who is doubted, and what comes instead."""

from __future__ import annotations

import numpy as np
import pytest

from anole.search.roles import Candidates
from anole.search.sample.confidence import Confidence, softmax

from ..conftest import choose, measured, space_of

SPACE = space_of([10, 10])
ALL = SPACE.vectors(range(100))
"""Every config, of which ten have the value 3 of each knob."""


def chosen(candidates, n, seed=0, **settings):
    return choose(Confidence(**settings), candidates, measured(SPACE), n, seed)


def test_softmax_is_a_distribution_and_safe():
    np.testing.assert_allclose(softmax(np.array([1000.0, 1000.0 + np.log(3)])), [0.25, 0.75])


def test_the_confident_stay_and_the_others_become_the_most_frequent_values():
    """Ten configs are worth more than all others by far."""
    found = chosen(Candidates(ALL, np.zeros(100), values=5.0 * (ALL[:, 0] == 3) + 1e-3 * ALL[:, 1]), 20)
    assert len(found) == 20 == len(np.unique(SPACE.indices(found))) and (found[:, 0] == 3).sum() == 10


@pytest.mark.parametrize("values", [None, np.full(10, 0.3)])
def test_values_that_tell_nothing_apart_doubt_nobody(values):
    """As before the surrogate's first fit: what is drawn is measured. The candidates lie on a diagonal."""
    found = chosen(Candidates(ALL[::11], np.zeros(10), values=values), 6)
    assert len(found) == 6 and (found[:, 0] == found[:, 1]).all()


def test_values_come_before_scores_and_scores_stand_in_for_them():
    liked, praised = (9.0 * (ALL[:, knob] == 3) for knob in (0, 1))
    by_values, by_scores = (chosen(Candidates(ALL, praised, values=values), 8) for values in (liked, None))
    assert (by_values[:, 0] == 3).sum() > 4 > (by_values[:, 1] == 3).sum()
    assert (by_scores[:, 1] == 3).sum() > 4 > (by_scores[:, 0] == 3).sum()


def test_temperature_decides_how_far_values_count():
    scores = np.linspace(0, 1, 100)
    warm, cool = (
        np.mean([scores[SPACE.indices(chosen(Candidates(ALL, scores), 10, seed, temperature=t))] for seed in range(20)])
        for t in (1.0, 0.05)
    )
    assert warm + 0.05 < cool
    cold = SPACE.indices(chosen(Candidates(ALL, scores), 10, temperature=1e-6))
    assert len(np.unique(cold)) == 10 and 99 in cold


def test_what_was_measured_does_not_come_instead():
    """All candidates have one value of a knob, so that only these are synthesised."""
    vectors = SPACE.vectors([2 + 10 * b for b in range(4)])
    found = chosen(Candidates(vectors, np.arange(4.0)), 4)
    assert sorted(found[:, 1].tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_in_units_of_their_deviation_the_size_of_values_makes_no_difference(scale):
    values = np.linspace(0, 1, 100) ** 2

    def both(units):
        return [
            chosen(Candidates(ALL, np.zeros(100), values=each), 10, units=units) for each in (values, scale * values)
        ]

    np.testing.assert_array_equal(*both("deviation"))
    assert not np.array_equal(*both("score"))


@pytest.mark.parametrize(("values", "n"), [(np.zeros(100), 100), (np.where(np.arange(100) < 4, 1e3, 0.0), 4)])
def test_the_log_says_between_how_many_candidates_is_drawn(values, n):
    candidates = Candidates(ALL, values, {"steps": 7.0})
    chosen(candidates, 10, units="score")
    assert candidates.log == {"steps": 7.0, "drawn_between": pytest.approx(n)}
