"""The contextual sampler: as much at random as the explorer asks for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anole.search.roles import Candidates
from anole.search.sample.contextual_greedy import ContextualGreedy
from anole.search.sample.epsilon_greedy import EpsilonGreedy


@pytest.fixture
def history(formula):
    return formula("bowl").history(30)


@pytest.fixture
def candidates(history):
    vectors = history.space.sample(128, np.random.default_rng(1), exclude=history.visited)
    return Candidates(vectors, np.linspace(1, 0, 128))


def choose(sampler, candidates, history, n=32):
    return sampler.start(history.space).choose(candidates, history, n, np.random.default_rng(0))


@pytest.mark.parametrize(("epsilon", "n_random"), [(0.0, 0), (0.25, 8), (0.5, 16), (0.99, 31), (1.0, 32)])
def test_the_batch_is_made_up_as_the_explorer_asks(history, candidates, epsilon, n_random):
    chosen = choose(ContextualGreedy(), replace(candidates, epsilon=epsilon), history)
    proposed = history.space.indices(candidates.vectors)
    from_explorer = np.isin(history.space.indices(chosen), proposed)
    assert len(chosen) == 32
    assert from_explorer[: 32 - n_random].all() and not from_explorer[32 - n_random :].any()


def test_what_is_not_random_is_chosen_as_greedy_does(history, candidates):
    asked = replace(candidates, epsilon=0.25)
    contextual = choose(ContextualGreedy(diversity_weight=0.3), asked, history)
    greedy = choose(EpsilonGreedy(epsilon=0.25, diversity_weight=0.3), asked, history)
    np.testing.assert_array_equal(contextual, greedy)
    assert not np.array_equal(contextual[:24], candidates.vectors[:24])


def test_without_a_word_from_the_explorer_its_own_share_counts(history, candidates):
    own = choose(ContextualGreedy(epsilon=0.5), candidates, history)
    np.testing.assert_array_equal(own, choose(EpsilonGreedy(epsilon=0.5), candidates, history))


def test_greedy_keeps_its_own_share(history, candidates):
    asked = replace(candidates, epsilon=1.0)
    np.testing.assert_array_equal(choose(EpsilonGreedy(), asked, history), choose(EpsilonGreedy(), candidates, history))
