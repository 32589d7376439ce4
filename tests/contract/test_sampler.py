"""What every sampler owes the loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.roles import Candidates, History
from anole.sample import SAMPLERS


@pytest.fixture(params=SAMPLERS)
def sampler_settings(request):
    return SAMPLERS[request.param]()


def candidates_of(history, n, seed):
    vectors = history.space.sample(n, np.random.default_rng(seed), exclude=history.visited)
    return Candidates(vectors, np.sort(np.random.default_rng(seed).random(len(vectors)))[::-1])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n_measured=st.integers(0, 8),
    n_candidates=st.integers(0, 8),
    n=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_the_choice_is_valid_distinct_new_and_no_more_than_asked(
    sampler_settings, formula, n_measured, n_candidates, n, seed
):
    small = formula("handful")
    history = small.history(n_measured)
    candidates = candidates_of(history, n_candidates, seed)
    chosen = sampler_settings.start(small.space).choose(candidates, history, n, np.random.default_rng(seed))
    indices = small.space.indices(chosen)
    assert min(n, len(candidates.vectors)) <= len(chosen) <= n
    assert small.space.valid(chosen).all()
    assert len(np.unique(indices)) == len(indices)
    assert not np.isin(indices, history.visited).any()


def test_the_choice_is_good_and_repeatable(sampler_settings, formula):
    history = formula("bowl").history(50)
    candidates = candidates_of(history, 200, 0)
    first, second = (
        sampler_settings.start(history.space).choose(candidates, history, 64, np.random.default_rng(5))
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    score_of = dict(zip(history.space.indices(candidates.vectors).tolist(), candidates.scores, strict=True))
    scores = [score_of.get(index, 0.0) for index in history.space.indices(first).tolist()]
    assert np.mean(scores) > candidates.scores.mean()


def test_nothing_to_choose_from(sampler_settings, formula):
    small = formula("handful")
    history = small.history(8)
    assert len(history) == len(small.space.valid_indices)
    nothing = Candidates(small.space.vectors([]), np.zeros(0))
    assert len(sampler_settings.start(small.space).choose(nothing, history, 4, np.random.default_rng(0))) == 0


def test_the_history_is_left_alone(sampler_settings, formula):
    history = formula("bowl").history(20)
    before: History = formula("bowl").history(20)
    sampler_settings.start(history.space).choose(candidates_of(history, 40, 1), history, 16, np.random.default_rng(0))
    np.testing.assert_array_equal(history.vectors, before.vectors)
    np.testing.assert_array_equal(history.gflops, before.gflops)
