"""Greedy samplers: epsilon, diversity and order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.roles import Candidates
from anole.search.sample.epsilon_greedy import EpsilonGreedy, pick_diverse
from anole.search.sample.first import First

from ...examples import examples


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
@given(pools(), st.integers(0, 7), st.floats(0, 1))
def test_greedy_is_within_its_bound_of_the_best_choice(pool, n, weight):
    vectors, scores = pool
    picked = pick_diverse(vectors, scores, n, weight).tolist()
    assert len(picked) == len(set(picked)) == min(n, len(vectors))
    best = max(
        objective(vectors, scores, rows, weight) for rows in itertools.combinations(range(len(vectors)), len(picked))
    )
    assert objective(vectors, scores, picked, weight) >= (1 - 1 / np.e) * best - 1e-9


@settings(max_examples=examples(60), deadline=None)
@given(pools(), st.floats(0, 1))
def test_every_pick_gains_most(pool, weight):
    vectors, scores = pool
    picked = pick_diverse(vectors, scores, len(vectors), weight).tolist()
    for position, row in enumerate(picked):
        before = picked[:position]
        gains = {other: objective(vectors, scores, [*before, other], weight) for other in picked[position:]}
        assert gains[row] == pytest.approx(max(gains.values()))


def test_without_weight_it_is_the_ranking():
    vectors = np.arange(12).reshape(6, 2)
    assert pick_diverse(vectors, np.array([0.1, 0.9, 0.5, 0.7, 0.2, 0.3]), 3, 0.0).tolist() == [1, 3, 2]


def test_prefers_an_unlike_config_to_a_slightly_better_twin():
    vectors = np.array([[0, 0, 0], [0, 0, 1], [3, 3, 3]])
    scores = np.array([1.0, 0.98, 0.95])
    assert pick_diverse(vectors, scores, 2, 0.1).tolist() == [0, 2]
    assert pick_diverse(vectors, scores, 2, 0.0).tolist() == [0, 1]


@pytest.fixture
def pool(formula):
    """A history of the bowl and 128 candidates for it, best first."""
    history = formula("bowl").history(30)
    vectors = history.space.sample(128, np.random.default_rng(1), exclude=history.visited)
    return history, Candidates(vectors, np.linspace(1, 0.5, 128))


def rows_of(chosen, history, candidates):
    """The row in candidates of each choice, -1 for one that is not from there."""
    rows = {index: row for row, index in enumerate(history.space.indices(candidates.vectors).tolist())}
    return [rows.get(index, -1) for index in history.space.indices(chosen).tolist()]


@pytest.mark.parametrize("ratio", [None, 1.0])
def test_without_diversity_the_best_are_taken_as_they_are(pool, ratio):
    history, candidates = pool
    sampler = EpsilonGreedy(diversity_ratio=ratio).start(history.space)
    rows = rows_of(sampler.choose(candidates, history, 64, np.random.default_rng(0)), history, candidates)
    assert rows[:61] == list(range(61))


def test_three_of_64_are_random_and_come_last(pool):
    history, candidates = pool
    sampler = EpsilonGreedy(diversity_ratio=None).start(history.space)
    choices = [
        rows_of(sampler.choose(candidates, history, 64, np.random.default_rng(seed)), history, candidates)
        for seed in range(5)
    ]
    assert {row for rows in choices for row in rows[61:]} - set(range(61)) == {-1}
    assert EpsilonGreedy(epsilon=0.0).epsilon == 0 and -1 not in rows_of(
        EpsilonGreedy(epsilon=0.0).start(history.space).choose(candidates, history, 64, np.random.default_rng(0)),
        history,
        candidates,
    )


def test_diversity_considers_as_many_as_the_ratio_says(pool):
    history, candidates = pool
    sampler = EpsilonGreedy(epsilon=0, diversity_ratio=1.5, diversity_weight=10.0).start(history.space)
    rows = rows_of(sampler.choose(candidates, history, 64, np.random.default_rng(0)), history, candidates)
    assert max(rows) < 96 and sorted(rows) != list(range(64))


def test_candidates_without_a_score_are_taken_as_they_come(pool):
    history, candidates = pool
    unscored = Candidates(candidates.vectors, np.zeros(128))
    sampler = EpsilonGreedy(diversity_weight=10.0).start(history.space)
    rows = rows_of(sampler.choose(unscored, history, 64, np.random.default_rng(0)), history, candidates)
    assert rows[:61] == list(range(61))


def test_random_configs_fill_up_what_the_explorer_left_open(pool):
    history, candidates = pool
    few = Candidates(candidates.vectors[:5], candidates.scores[:5])
    chosen = EpsilonGreedy().start(history.space).choose(few, history, 64, np.random.default_rng(0))
    assert len(chosen) == 64 and sorted(rows_of(chosen, history, few))[-5:] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("sampler", [EpsilonGreedy(), First()])
def test_greedy_samplers_fill_the_batch_with_candidates_better_than_most(pool, sampler):
    history, candidates = pool
    chosen = sampler.start(history.space).choose(candidates, history, 48, np.random.default_rng(0))
    scores = [candidates.scores[row] for row in rows_of(chosen, history, candidates) if row >= 0]
    assert len(chosen) == 48 and len(scores) >= 46
    assert np.mean(scores) > candidates.scores.mean()


@pytest.mark.parametrize("sampler", [EpsilonGreedy(), First()])
def test_greedy_samplers_take_all_where_there_are_no_more(formula, sampler):
    small = formula("handful")
    history = small.history(3)
    free = small.space.sample(8, np.random.default_rng(0), exclude=history.visited)
    chosen = sampler.start(small.space).choose(Candidates(free, np.zeros(5)), history, 12, np.random.default_rng(0))
    assert sorted(chosen.tolist()) == sorted(free.tolist())


def test_first_takes_the_first(pool):
    history, candidates = pool
    chosen = First().start(history.space).choose(candidates, history, 10, np.random.default_rng(0))
    np.testing.assert_array_equal(chosen, candidates.vectors[:10])
