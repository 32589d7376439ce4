"""Simulated annealing: its moves, its state and its results."""

from dataclasses import replace

import numpy as np
import pytest

from anole.search.explore.annealing import Annealing
from anole.search.surrogate.boosted_trees import BoostedTrees
from kit.oracle import Oracle, OracleSurrogate

from ..conftest import fit, history_of, propose


@pytest.fixture
def history(bowl):
    return history_of(bowl.space)


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
    explorer = Annealing().start(replace(small.space, constraints=()))
    points = np.tile([2, 1], (4000, 1))
    moved = explorer._move(points, np.random.default_rng(0))
    a_values, a_counts = np.unique(moved[moved[:, 0] != 2, 0], return_counts=True)
    b_values, b_counts = np.unique(moved[moved[:, 1] != 1, 1], return_counts=True)
    assert a_values.tolist() == [0, 1, 3] and b_values.tolist() == [0, 2]
    assert np.abs(a_counts - 2000 / 3).max() < 120 and np.abs(b_counts - 1000).max() < 120


def test_finds_the_optimum_of_the_surrogate(bowl, oracle, history):
    annealed = propose(Annealing(), oracle, history)
    sampled = bowl.space.sample(annealed.log["queries"], np.random.default_rng(0))
    assert annealed.scores[0] == pytest.approx(1.0)
    assert np.sort(oracle.score(sampled))[-64:].mean() < annealed.scores[:64].mean() - 0.02


def test_chains_stay_where_they_are_between_iterations(bowl, oracle, history):
    explorer = Annealing(n_chains=16, n_steps=60).start(bowl.space)
    explorer.propose(oracle, history, np.random.default_rng(0))
    points = explorer._points.copy()
    brief = Annealing(n_chains=16, n_steps=1).start(bowl.space)
    brief._points = points
    brief.propose(oracle, history, np.random.default_rng(1))
    assert ((brief._points != points).sum(axis=1) <= 1).all()


def test_lower_temperatures_reach_higher_scores(bowl, oracle, history):
    """Hot chains accept worse configs, cold ones do not."""

    def mean_score(temperature):
        explorer = Annealing(
            n_steps=200, start_temperature=temperature, end_temperature=temperature, patience=1000
        ).start(bowl.space)
        explorer.propose(oracle, history, np.random.default_rng(0))
        return oracle.score(explorer._points).mean()

    assert mean_score(1.0) < mean_score(0.1) < mean_score(0.0)


def test_stops_early_when_the_best_no_longer_change(formula):
    small = formula("handful")
    candidates = propose(Annealing(patience=7), Oracle(small, 1e-3).start(small.space), small.history(0))
    assert len(candidates.vectors) == 8 == candidates.log["queries"]
    assert 7 <= candidates.log["steps"] < 40
    assert 0 <= candidates.log["converged_at"] <= candidates.log["steps"]


def test_patience_counts_only_changes_among_the_best(oracle, history):
    """With the same `patience_over`, a search for more candidates takes the same steps."""
    few, many, all_of_many = (
        propose(Annealing(patience=8, n_candidates=n, patience_over=watched), oracle, history)
        for n, watched in ((16, 16), (512, 16), (512, None))
    )
    assert few.log["steps"] == many.log["steps"] < all_of_many.log["steps"]
    np.testing.assert_array_equal(few.vectors, many.vectors[:16])


def test_keeps_scores_below_zero(oracle, history):
    """AutoTVM drops these, and adds random configs if its ranking model gives many."""
    shifted = OracleSurrogate(oracle.space, lambda vectors: oracle.truth(vectors) - 5)
    above, below = (propose(Annealing(), surrogate, history).vectors for surrogate in (oracle, shifted))
    np.testing.assert_array_equal(above, below)


def test_guided_by_trees_it_finds_faster_configs_than_measured(bowl):
    history = bowl.history(256)
    candidates = propose(Annealing(), fit(BoostedTrees(), history), history)
    measured_s, proposed_s = (bowl.cost_s(bowl.space.columns(each.vectors)) for each in (history, candidates))
    assert np.nanmin(proposed_s) < np.nanmin(measured_s)
    assert np.nanmedian(proposed_s) < np.nanquantile(measured_s, 0.02)
