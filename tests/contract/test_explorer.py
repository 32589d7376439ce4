"""What every explorer owes the loop, whatever the surrogate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from anole.search.explore import EXPLORERS
from anole.search.roles import History
from anole.search.surrogate import SURROGATES
from anole.space import Space, option_knob


@pytest.fixture(params=itertools.product(EXPLORERS, SURROGATES), ids="-".join)
def parts(request):
    """The settings of an explorer and of a surrogate."""
    explorer, surrogate = request.param
    return EXPLORERS[explorer](), SURROGATES[surrogate]()


def fitted(settings, history):
    surrogate = settings.start(history.space)
    surrogate.fit(history)
    return surrogate


def test_candidates_are_valid_distinct_and_new(parts, formula):
    history = formula("bowl").history(80)
    space = history.space
    explorer, surrogate = parts[0].start(space), fitted(parts[1], history)
    for iteration in range(3):
        candidates = explorer.propose(surrogate, history, np.random.default_rng(iteration))
        indices = space.indices(candidates.vectors)
        assert len(indices) >= 64
        assert candidates.vectors.dtype == np.int64
        assert space.valid(candidates.vectors).all()
        assert len(np.unique(indices)) == len(indices)
        assert not np.isin(indices, history.visited).any()


def test_candidates_carry_the_surrogates_word_best_first(parts, formula):
    history = formula("bowl").history(80)
    explorer, surrogate = parts[0].start(history.space), fitted(parts[1], history)
    candidates = explorer.propose(surrogate, history, np.random.default_rng(0))
    assert candidates.scores.shape == (len(candidates.vectors),)
    assert (np.diff(candidates.scores) <= 0).all()
    if candidates.scores.any():
        np.testing.assert_allclose(candidates.scores, surrogate.score(candidates.vectors), rtol=1e-6)
    assert all(isinstance(value, (int, float)) for value in candidates.log.values())


def test_same_randomness_same_candidates_over_iterations(parts, formula):
    history = formula("bowl").history(80)
    surrogate = fitted(parts[1], history)
    runs = []
    for _ in range(2):
        explorer = parts[0].start(history.space)
        runs.append([explorer.propose(surrogate, history, np.random.default_rng(seed)).vectors for seed in (3, 4)])
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    np.testing.assert_array_equal(runs[0][1], runs[1][1])
    assert not np.array_equal(runs[0][0], runs[0][1])


def test_before_the_first_fit_candidates_are_uniform(parts, formula):
    space = formula("bowl").space
    explorer, surrogate = parts[0].start(space), parts[1].start(space)
    candidates = explorer.propose(surrogate, History(space, 1), np.random.default_rng(0))
    assert len(candidates.vectors) >= 64 and not candidates.scores.any()
    assert len(np.unique(candidates.vectors[:, 0])) > 30


def test_a_small_space_is_exhausted_and_then_there_is_nothing(parts, formula):
    small = formula("handful")
    explorer = parts[0].start(small.space)
    history = History(small.space, small.flop)
    surrogate = parts[1].start(small.space)
    for iteration in range(20):
        candidates = explorer.propose(surrogate, history, np.random.default_rng(iteration))
        chosen = candidates.vectors[:2]
        history.add(chosen, small.measurements(chosen))
        surrogate.fit(history)
    np.testing.assert_array_equal(np.sort(history.visited), small.space.valid_indices)
    assert len(explorer.propose(surrogate, history, np.random.default_rng(0)).vectors) == 0


def test_a_space_of_one_config(parts):
    space = Space([option_knob("only", [7])])
    candidates = parts[0].start(space).propose(parts[1].start(space), History(space, 1), np.random.default_rng(0))
    assert candidates.vectors.tolist() == [[0]]
