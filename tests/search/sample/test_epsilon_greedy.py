"""Greedy samplers: epsilon, diversity and order."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.roles import Candidates
from anole.search.sample.epsilon_greedy import ContextualGreedy, EpsilonGreedy, pick_diverse
from anole.search.sample.first import First
from anole.space import Space, option_knob

from ...examples import examples
from ..conftest import choose, history_of


def objective(vectors, scores, rows, weight):
    """Return equation 3 of the paper, computed literally."""
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
def test_every_pick_has_the_max_gain(pool, n, weight):
    """The objective is submodular, so a greedy choice is within 1 - 1/e of the best one."""
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
    """Return the candidates' row of each chosen config, -1 for other configs."""
    rows = {index: row for row, index in enumerate(history.space.indices(candidates.vectors).tolist())}
    chosen = choose(sampler, candidates, history, n, seed)
    return [rows.get(index, -1) for index in history.space.indices(chosen).tolist()]


@pytest.mark.parametrize(("ratio", "epsilon", "n_best"), [(None, 0.05, 61), (1.0, 0.05, 61), (None, 0.0, 64)])
def test_without_diversity_the_best_are_chosen_plus_a_few_random_ones(history, candidates, ratio, epsilon, n_best):
    for seed in range(5):
        rows = rows_of(EpsilonGreedy(epsilon, ratio), candidates, history, seed=seed)
        assert rows[:n_best] == list(range(n_best)) and set(rows[n_best:]) <= {-1}


def test_diversity_considers_ratio_times_n_candidates(history, candidates):
    rows = rows_of(EpsilonGreedy(0, diversity_ratio=1.5, diversity_weight=10.0), candidates, history)
    assert max(rows) < 96 and sorted(rows) != list(range(64))


def test_candidates_without_scores_are_taken_in_order(history, candidates):
    unscored = replace(candidates, scores=np.zeros(128))
    assert rows_of(EpsilonGreedy(diversity_weight=10.0), unscored, history)[:61] == list(range(61))


def test_random_configs_complete_a_batch_of_few_candidates(history, candidates):
    few = Candidates(candidates.vectors[:5], candidates.scores[:5])
    rows = rows_of(EpsilonGreedy(), few, history)
    assert len(rows) == 64 and sorted(rows)[-5:] == [0, 1, 2, 3, 4]


def test_first_takes_the_top_candidates(history, candidates):
    assert rows_of(First(), candidates, history, 10) == list(range(10))


@pytest.mark.parametrize(("epsilon", "n_random"), [(0.0, 0), (0.25, 8), (0.5, 16), (0.99, 31), (1.0, 32)])
def test_a_contextual_batch_has_the_explorers_random_share(history, candidates, epsilon, n_random):
    rows = rows_of(ContextualGreedy(), replace(candidates, epsilon=epsilon), history, 32)
    assert len(rows) == 32 and -1 not in rows[: 32 - n_random] and set(rows[32 - n_random :]) <= {-1}


@pytest.mark.parametrize("explorer_epsilon", [None, 0.25])
def test_contextual_greedy_otherwise_equals_epsilon_greedy(history, candidates, explorer_epsilon):
    """Without a share from the explorer, the sampler's own epsilon counts."""
    contextual_candidates = replace(candidates, epsilon=explorer_epsilon)
    contextual = rows_of(ContextualGreedy(0.5, diversity_weight=0.3), contextual_candidates, history, 32)
    assert contextual == rows_of(
        EpsilonGreedy(explorer_epsilon or 0.5, diversity_weight=0.3), contextual_candidates, history, 32
    )
    assert contextual[:16] != list(range(16))


def test_least_random_applies_to_small_batches(history, candidates):
    """A twentieth of 16 rounds to none."""
    counts = [rows_of(EpsilonGreedy(0.05, None, least_random=n), candidates, history, 16).count(-1) for n in (0, 1, 20)]
    assert counts == [0, 1, 16]


def test_knobs_without_an_effect_add_no_diversity(bowl):
    """The first half has one program for all values of a knob, the second half one program per value."""
    knobs = [option_knob("size", list(range(8))), option_knob("tile", list(range(8)))]
    space = Space(knobs, programs=lambda columns: np.stack([columns["tile"]], axis=1))
    vectors = np.array([[size, 0] for size in range(8)] + [[0, tile] for tile in range(1, 8)])
    sampler = EpsilonGreedy(0.0, diversity_ratio=2.0, diversity_weight=1.0)
    found = choose(sampler, Candidates(vectors, np.linspace(1, 0.9, 15)), history_of(space), 8)
    assert sorted(found[:, 1]) == list(range(8))
