"""What every sampler owes the loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.search.roles import Candidates, History
from anole.search.sample import SAMPLERS


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
    assert min(1, len(candidates.vectors)) <= len(chosen) <= n
    assert chosen.shape[1] == len(small.space.knobs) and chosen.dtype == np.int64
    assert small.space.valid(chosen).all()
    assert len(np.unique(indices)) == len(indices)
    assert not np.isin(indices, history.visited).any()


def test_the_choice_is_repeatable(sampler_settings, formula):
    history = formula("bowl").history(50)
    candidates = candidates_of(history, 200, 0)
    first, second = (
        sampler_settings.start(history.space).choose(candidates, history, 64, np.random.default_rng(5))
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_the_choice_is_faster_than_chance_where_the_candidates_are(sampler_settings, formula):
    """A sampler may choose other configs than the candidates, but not at the price of what makes these fast."""
    bowl = formula("bowl")
    history, pool = bowl.history(50), bowl.history(4000, seed=1)
    unseen = ~np.isin(pool.visited, history.visited)
    ranking = np.argsort(-pool.scores[unseen])[:128]
    candidates = Candidates(pool.vectors[unseen][ranking], pool.scores[unseen][ranking])
    chosen = sampler_settings.start(bowl.space).choose(candidates, history, 64, np.random.default_rng(0))
    measured = History(bowl.space, bowl.flop)
    measured.add(chosen, bowl.measurements(chosen))
    assert measured.gflops.mean() > pool.gflops.mean()


def test_nothing_to_choose_from(sampler_settings, formula):
    small = formula("handful")
    history = small.history(8)
    assert len(history) == len(small.space.valid_indices)
    nothing = Candidates(small.space.vectors([]), np.zeros(0))
    chosen = sampler_settings.start(small.space).choose(nothing, history, 4, np.random.default_rng(0))
    assert chosen.shape == (0, len(small.space.knobs))


def test_the_history_is_left_alone(sampler_settings, formula):
    history = formula("bowl").history(20)
    before: History = formula("bowl").history(20)
    sampler_settings.start(history.space).choose(candidates_of(history, 40, 1), history, 16, np.random.default_rng(0))
    np.testing.assert_array_equal(history.vectors, before.vectors)
    np.testing.assert_array_equal(history.gflops, before.gflops)
