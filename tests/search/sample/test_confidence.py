"""Confidence sampling: who is drawn, who is doubted, and what comes instead."""

from __future__ import annotations

import numpy as np
import pytest

from anole.search.roles import Candidates, History
from anole.search.sample.confidence import Confidence, softmax
from anole.space import Space, option_knob


@pytest.fixture
def space():
    return Space([option_knob("a", list(range(10))), option_knob("b", list(range(10)))])


def choose(space, candidates, n, history=None, seed=0, **settings):
    sampler = Confidence(**settings).start(space)
    return sampler.choose(candidates, history or History(space, 1), n, np.random.default_rng(seed))


def test_softmax_is_a_distribution_and_safe():
    found = softmax(np.array([1000.0, 1000.0 + np.log(3)]))
    np.testing.assert_allclose(found, [0.25, 0.75])


def test_the_confident_stay_and_the_others_become_the_most_frequent_values(space):
    vectors = space.vectors(range(100))
    values = np.where(vectors[:, 0] == 7, 5.0, 0.0) + 1e-3 * vectors[:, 1]
    chosen = choose(space, Candidates(vectors, np.zeros(100), values=values), 20)
    assert len(chosen) == 20 and len(np.unique(space.indices(chosen))) == 20
    # Ten configs have a 7, and are worth more than all others by far.
    assert (chosen[:, 0] == 7).sum() == 10


@pytest.mark.parametrize("values", [None, np.full(100, 0.3)])
def test_values_that_tell_nothing_apart_doubt_nobody(space, values):
    """As before the surrogate's first fit: what is drawn is measured. The candidates lie on a diagonal."""
    vectors = space.vectors(range(0, 100, 11))
    chosen = choose(space, Candidates(vectors, np.zeros(10), values=None if values is None else values[:10]), 6)
    assert len(chosen) == 6 and (chosen[:, 0] == chosen[:, 1]).all()


def test_values_come_before_scores_and_scores_stand_in_for_them(space):
    vectors = space.vectors(range(100))
    liked, praised = (vectors[:, knob] == 3 for knob in (0, 1))
    by_values = choose(space, Candidates(vectors, 9.0 * praised, values=9.0 * liked), 8)
    by_scores = choose(space, Candidates(vectors, 9.0 * praised), 8)
    assert (by_values[:, 0] == 3).sum() > 4 > (by_values[:, 1] == 3).sum()
    assert (by_scores[:, 1] == 3).sum() > 4 > (by_scores[:, 0] == 3).sum()


def test_temperature_decides_how_far_values_count(space):
    vectors = space.vectors(range(100))
    values = np.linspace(0, 1, 100)
    means = [
        np.mean(
            [
                np.mean(
                    values[space.indices(choose(space, Candidates(vectors, values), 10, None, seed, temperature=t))]
                )
                for seed in range(20)
            ]
        )
        for t in (1.0, 0.05)
    ]
    assert means[0] + 0.05 < means[1]


def test_what_was_measured_does_not_come_instead(space):
    """All candidates have an a of 2, so that only these are synthesised."""
    vectors = space.vectors([2 + 10 * b for b in range(4)])
    chosen = choose(space, Candidates(vectors, np.arange(4.0)), 4)
    assert sorted(chosen[:, 1].tolist()) == [0, 1, 2, 3]


def test_a_cold_softmax_still_fills_the_batch(space):
    vectors = space.vectors(range(100))
    chosen = choose(space, Candidates(vectors, np.linspace(0, 1, 100)), 10, temperature=1e-6)
    assert len(np.unique(space.indices(chosen))) == 10 and 99 in space.indices(chosen)
