"""Greedy samplers: epsilon, diversity and order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.roles import Candidates
from anole.search.sample.contextual_greedy import ContextualGreedy
from anole.search.sample.epsilon_greedy import EpsilonGreedy, pick_diverse
from anole.search.sample.first import First
from anole.space import Space, option_knob

from ...examples import examples
from ..conftest import choose, measured


def objective(vectors, scores, rows, weight):
    """Equation 3 of the paper, as it is written."""
    covered = {(knob, value) for row in rows for knob, value in enumerate(vectors[row])}
    return sum(scores[row] for row in rows) + weight * len(covered)


@st.composite
def pools(draw):
    n, n_knobs = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    vectors = draw(st.lists(st.tuples(*[st.integers(0, 3)] * n_knobs), min_size=n, max_size=n))
    scores = draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    return np.array(vectors), np.array(scores)


@settings(max_examples=examples(100), deadline=None)
@given(pools(), st.integers(0, 8), st.floats(0, 1))
def test_every_pick_gains_most(pool, n, weight):
    """So a choice is within 1 - 1/e of the best one: the objective is submodular."""
    vectors, scores = pool
    picked = pick_diverse(vectors, scores, n, weight).tolist()
    assert len(picked) == len(set(picked)) == min(n, len(vectors))
    for position, row in enumerate(picked):
        before = picked[:position]
        others = set(range(len(vectors))) - set(before)
        gains = {other: objective(vectors, scores, [*before, other], weight) for other in others}
        assert gains[row] == pytest.approx(max(gains.values()))


@pytest.fixture
def history(bowl):
    return bowl.history(30)


@pytest.fixture
def candidates(history):
    """128 candidates, best first."""
    vectors = history.space.sample(128, np.random.default_rng(1), exclude=history.visited)
    return Candidates(vectors, np.linspace(1, 0.5, 128))


def rows_of(sampler, candidates, history, n=64, seed=0):
    """The row in the candidates of each choice, -1 for one that is not from there."""
    rows = {index: row for row, index in enumerate(history.space.indices(candidates.vectors).tolist())}
    chosen = choose(sampler, candidates, history, n, seed)
    return [rows.get(index, -1) for index in history.space.indices(chosen).tolist()]


@pytest.mark.parametrize(("ratio", "epsilon", "n_best"), [(None, 0.05, 61), (1.0, 0.05, 61), (None, 0.0, 64)])
def test_without_diversity_the_best_are_taken_as_they_are_and_then_a_few_at_random(
    history, candidates, ratio, epsilon, n_best
):
    for seed in range(5):
        rows = rows_of(EpsilonGreedy(epsilon, ratio), candidates, history, seed=seed)
        assert rows[:n_best] == list(range(n_best)) and set(rows[n_best:]) <= {-1}


def test_diversity_considers_as_many_as_the_ratio_says(history, candidates):
    rows = rows_of(EpsilonGreedy(0, diversity_ratio=1.5, diversity_weight=10.0), candidates, history)
    assert max(rows) < 96 and sorted(rows) != list(range(64))


def test_candidates_without_a_score_are_taken_as_they_come(history, candidates):
    unscored = replace(candidates, scores=np.zeros(128))
    assert rows_of(EpsilonGreedy(diversity_weight=10.0), unscored, history)[:61] == list(range(61))


def test_random_configs_fill_up_what_the_explorer_left_open(history, candidates):
    few = Candidates(candidates.vectors[:5], candidates.scores[:5])
    rows = rows_of(EpsilonGreedy(), few, history)
    assert len(rows) == 64 and sorted(rows)[-5:] == [0, 1, 2, 3, 4]


def test_first_takes_the_first(history, candidates):
    assert rows_of(First(), candidates, history, 10) == list(range(10))


@pytest.mark.parametrize(("epsilon", "n_random"), [(0.0, 0), (0.25, 8), (0.5, 16), (0.99, 31), (1.0, 32)])
def test_a_contextual_batch_is_made_up_as_the_explorer_asks(history, candidates, epsilon, n_random):
    rows = rows_of(ContextualGreedy(), replace(candidates, epsilon=epsilon), history, 32)
    assert len(rows) == 32 and -1 not in rows[: 32 - n_random] and set(rows[32 - n_random :]) <= {-1}


@pytest.mark.parametrize("asked", [None, 0.25])
def test_what_is_not_random_is_chosen_as_greedy_does(history, candidates, asked):
    """Without a word from the explorer its own share counts, which is all that the greedy sampler knows."""
    told = replace(candidates, epsilon=asked)
    contextual = rows_of(ContextualGreedy(0.5, diversity_weight=0.3), told, history, 32)
    assert contextual == rows_of(EpsilonGreedy(asked or 0.5, diversity_weight=0.3), told, history, 32)
    assert contextual[:16] != list(range(16))


def test_a_small_batch_has_at_least_as_many_random_configs_as_are_asked_for(history, candidates):
    """A twentieth of 16 is none."""
    counts = [rows_of(EpsilonGreedy(0.05, None, least_random=n), candidates, history, 16).count(-1) for n in (0, 1, 20)]
    assert counts == [0, 1, 16]


def test_knobs_that_change_no_program_are_no_diversity(bowl):
    """The first half has one program for all values of a knob, the second one for each."""
    knobs = [option_knob("size", list(range(8))), option_knob("tile", list(range(8)))]
    space = Space(knobs, programs=lambda columns: np.stack([columns["tile"]], axis=1))
    vectors = np.array([[size, 0] for size in range(8)] + [[0, tile] for tile in range(1, 8)])
    sampler = EpsilonGreedy(0.0, diversity_ratio=2.0, diversity_weight=1.0)
    found = choose(sampler, Candidates(vectors, np.linspace(1, 0.9, 15)), measured(space), 8)
    assert sorted(found[:, 1]) == list(range(8))
