"""Simulated annealing: its moves, its state and what it finds."""

from __future__ import annotations

import numpy as np
import pytest

from anole.search.explore.annealing import Annealing
from anole.search.explore.random import Random
from anole.search.roles import History
from anole.search.surrogate.blind import Blind
from anole.search.surrogate.boosted_trees import BoostedTrees


class Oracle:
    """A surrogate that knows the formula: speed relative to the best of the space."""

    fitted = True

    def __init__(self, formula):
        self.formula, self.best_s, self.asked = formula, formula.optimum_s, 0

    def fit(self, history):
        pass

    def score(self, vectors):
        self.asked += len(vectors)
        return self.best_s / np.nan_to_num(self.formula.cost_s(self.formula.space.columns(vectors)), nan=np.inf)


@pytest.fixture
def bowl(formula):
    return formula("bowl")


def test_a_move_changes_exactly_one_knob_to_another_valid_value(bowl):
    explorer = Annealing().start(bowl.space)
    rng = np.random.default_rng(0)
    points = bowl.space.sample(128, rng)
    for _ in range(20):
        moved = explorer._move(points, rng)
        assert bowl.space.valid(moved).all()
        n_changed = (moved != points).sum(axis=1)
        assert (n_changed <= 1).all() and (n_changed == 1).mean() > 0.95
        points = moved


def test_moves_reach_every_other_value_of_every_knob_equally(formula):
    small = formula("handful")
    unbound = type(small.space)(small.space.knobs)
    explorer = Annealing().start(unbound)
    points = np.tile([2, 1], (4000, 1))
    moved = explorer._move(points, np.random.default_rng(0))
    a_values, a_counts = np.unique(moved[moved[:, 0] != 2, 0], return_counts=True)
    b_values, b_counts = np.unique(moved[moved[:, 1] != 1, 1], return_counts=True)
    assert a_values.tolist() == [0, 1, 3] and b_values.tolist() == [0, 2]
    assert np.abs(a_counts - 2000 / 3).max() < 120 and np.abs(b_counts - 1000).max() < 120


def test_finds_the_optimum_of_what_the_surrogate_says(bowl):
    oracle = Oracle(bowl)
    explorer, history = Annealing().start(bowl.space), History(bowl.space, bowl.flop)
    annealed = explorer.propose(oracle, history, np.random.default_rng(0))
    drawn = (
        Random(n_candidates=oracle.asked)
        .start(bowl.space)
        .propose(Blind().start(bowl.space), history, np.random.default_rng(0))
    )
    assert annealed.scores[0] == pytest.approx(1.0)
    assert np.sort(oracle.score(drawn.vectors))[-64:].mean() < annealed.scores[:64].mean() - 0.02


def test_chains_stay_where_they_are_between_iterations(bowl):
    oracle, history = Oracle(bowl), History(bowl.space, bowl.flop)
    explorer = Annealing(n_chains=16, n_steps=60).start(bowl.space)
    explorer.propose(oracle, history, np.random.default_rng(0))
    points = explorer._points.copy()
    brief = Annealing(n_chains=16, n_steps=1).start(bowl.space)
    brief._points = points
    brief.propose(oracle, history, np.random.default_rng(1))
    assert ((brief._points != points).sum(axis=1) <= 1).all()


def test_gets_colder(bowl):
    """Hot chains accept what is worse, cold ones do not."""
    oracle, history = Oracle(bowl), History(bowl.space, bowl.flop)

    def mean_score(temperature):
        explorer = Annealing(
            n_steps=200, start_temperature=temperature, end_temperature=temperature, patience=1000
        ).start(bowl.space)
        explorer.propose(oracle, history, np.random.default_rng(0))
        return oracle.score(explorer._points).mean()

    assert mean_score(1.0) < mean_score(0.1) < mean_score(0.0)


def test_stops_early_when_the_best_no_longer_change(formula):
    small = formula("handful")
    explorer = Annealing(patience=7).start(small.space)
    candidates = explorer.propose(Oracle(small), History(small.space, small.flop), np.random.default_rng(0))
    assert len(candidates.vectors) == 8
    assert 7 <= candidates.log["steps"] < 40
    assert 0 <= candidates.log["converged_at"] <= candidates.log["steps"]
    assert candidates.log["queries"] == 8


def test_patience_counts_changes_among_the_best_alone(bowl):
    """Asked for more candidates than its patience watches, a search takes the steps of one that is asked for fewer."""
    oracle, history = Oracle(bowl), History(bowl.space, bowl.flop)

    def search(**settings):
        explorer = Annealing(patience=8, **settings).start(bowl.space)
        return explorer.propose(oracle, history, np.random.default_rng(0))

    few, many, all_of_many = (
        search(n_candidates=16, patience_over=16),
        search(n_candidates=512, patience_over=16),
        search(n_candidates=512, patience_over=None),
    )
    assert few.log["steps"] == many.log["steps"] < all_of_many.log["steps"]
    np.testing.assert_array_equal(few.vectors, many.vectors[:16])


def test_asks_the_surrogate_once_for_each_config(bowl):
    oracle = Oracle(bowl)
    candidates = Annealing().start(bowl.space).propose(oracle, History(bowl.space, bowl.flop), np.random.default_rng(0))
    assert oracle.asked == candidates.log["queries"] <= 128 * 501


def test_keeps_scores_below_zero(bowl):
    """AutoTVM drops them, and fills up with random configs when its ranking model gives many."""
    oracle = Oracle(bowl)
    history = History(bowl.space, bowl.flop)

    class Sunken(Oracle):
        def score(self, vectors):
            return super().score(vectors) - 5

    above = Annealing().start(bowl.space).propose(oracle, history, np.random.default_rng(0))
    below = Annealing().start(bowl.space).propose(Sunken(bowl), history, np.random.default_rng(0))
    np.testing.assert_array_equal(above.vectors, below.vectors)


def test_walks_on_the_trees_word_to_faster_configs_than_were_measured(bowl):
    history = bowl.history(256)
    surrogate = BoostedTrees().start(bowl.space)
    surrogate.fit(history)
    candidates = Annealing().start(bowl.space).propose(surrogate, history, np.random.default_rng(0))
    measured, proposed = (
        bowl.cost_s(bowl.space.columns(history.vectors)),
        bowl.cost_s(bowl.space.columns(candidates.vectors)),
    )
    assert np.nanmin(proposed) < np.nanmin(measured)
    assert np.nanmedian(proposed) < np.nanquantile(measured, 0.02)
