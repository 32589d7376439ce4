"""The PPO explorer: the configs it finds, its log, and its state between searches."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from anole.search.explore.annealing import Annealing
from anole.search.explore.ppo import MAPPO, PPO
from anole.testing import formulas
from kit.oracle import Oracle, OracleSurrogate

from ...conftest import history_of, propose, space_of

BRIEF = PPO(n_episodes=32, n_steps=60, horizon=20, n_minibatches=2)
"""A short search, for tests that do not depend on learning."""


@pytest.fixture
def history(bowl):
    return bowl.history(20)


def ridge():
    """Return an empty history, and a surrogate that knows a ridge."""
    formula = formulas.ridge()
    return history_of(formula.space), Oracle(formula, 1e-3).start(formula.space)


def best_of_two(explorer, seed):
    """Return the best score that two searches of a ridge find, and their number of queries."""
    history, oracle = ridge()
    started = explorer.start(history.space)
    found = [started.propose(oracle, history, np.random.default_rng([seed, i])) for i in range(2)]
    return max(candidates.scores[0] for candidates in found), len(oracle.asked)


@pytest.mark.guard
def test_reaches_the_known_optimum(history, oracle):
    explorer = PPO(converged_share=None).start(history.space)
    best = (explorer.propose(oracle, history, np.random.default_rng(seed)).scores[0] for seed in range(2))
    assert any(score == pytest.approx(1.0) for score in best)
    assert len(oracle.asked) < 0.5 * len(history.space.valid_indices)


@pytest.mark.guard
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(3), marks=pytest.mark.slow)], ids=["one", "three"])
def test_beats_annealing_if_two_knobs_must_move_together(seeds):
    """With the same number of queries, by a tenth of the optimum on average over all seeds."""
    learned, annealed = [], []
    for seed in seeds:
        score, n_queries = best_of_two(PPO(n_steps=250, converged_share=None, n_candidates=64), seed)
        learned.append(score)
        history, oracle = ridge()
        n_steps = n_queries // 128 + 1
        annealed.append(propose(Annealing(n_steps=n_steps, patience=n_steps), oracle, history, seed).scores[0])
        assert len(oracle.asked) > 0.95 * n_queries
    assert np.mean(learned) > 0.97
    assert np.mean(learned) > np.mean(annealed) + 0.1


FORMS = [{"observes": observes, "critic": critic} for observes in ("all", "own") for critic in ("actions", "state")]


@pytest.mark.guard
@pytest.mark.parametrize(
    ("form", "seeds"),
    [({}, range(1, 2)), *(pytest.param(form, range(12), marks=pytest.mark.slow) for form in FORMS)],
    ids=str,
)
def test_agents_learn_to_follow_a_ridge(form, seeds):
    """Each agent has a pair of knobs. Without learning, the same walks find 0.6 to 0.8 of the optimum."""
    mappo = MAPPO(n_steps=300, converged_share=None, n_candidates=64, **form)
    best = [best_of_two(mappo, seed)[0] for seed in seeds]
    assert np.mean(best) > 0.93


@pytest.mark.guard
def test_learns_over_iterations(history, oracle):
    """The second search starts at random configs, but with trained networks."""
    explorer = PPO(n_steps=150, converged_share=None).start(history.space)
    medians = [np.median(explorer.propose(oracle, history, np.random.default_rng(seed)).scores) for seed in range(2)]
    assert medians[1] > medians[0] + 0.05


def test_the_log_has_the_statistics_of_the_search(history, oracle):
    explorer = BRIEF.start(history.space)
    for seed in range(3):
        oracle.asked.clear()
        log = explorer.propose(oracle, history, np.random.default_rng(seed)).log
        assert {"approx_kl", "clip_fraction", "entropy", "explained_variance", "policy_loss", "value_loss"} < set(log)
        assert all(math.isfinite(figure) for figure in log.values())
        assert log["queries"] == len(oracle.asked) == oracle.asked.total()
        assert 0 < log["episode_steps"] <= log["steps"] <= 60
        assert log["updates"] == -(-log["steps"] // 20)
        assert 0 <= log["clip_fraction"] <= 1 and log["explained_variance"] <= 1


def test_episodes_may_run_one_by_one_with_an_update_after_each(history, oracle):
    """The papers run episodes in this way."""
    settings = replace(BRIEF, n_episodes=6, n_steps=12, horizon=12, converged_share=None, at_once=1)
    alone, parallel = (propose(each, oracle, history).log for each in (settings, replace(settings, at_once=None)))
    assert (alone["updates"], alone["steps"], alone["episode_steps"]) == (6, 72, 12)
    assert (parallel["updates"], parallel["steps"], parallel["episode_steps"]) == (1, 12, 12)


def test_proposes_every_visited_config_or_the_best(history, oracle):
    everything = propose(BRIEF, oracle, history)
    found = set(history.space.indices(everything.vectors).tolist())
    assert found == oracle.asked.keys() - set(history.visited.tolist())
    best = propose(replace(BRIEF, n_candidates=40), oracle, history)
    np.testing.assert_array_equal(best.vectors, everything.vectors[:40])


@pytest.mark.guard
def test_converged_episodes_end_the_search_early(history, oracle):
    endless, strict, lax = (
        propose(replace(BRIEF, converged_share=share), oracle, history).log for share in (None, 1.0, 0.5)
    )
    assert endless["episode_steps"] == endless["steps"] == 60
    assert lax["episode_steps"] < strict["episode_steps"] < 60
    assert lax["steps"] < 60


def test_no_episode_ends_before_min_steps(history, oracle):
    """RELEASE's code checks convergence only after 129 steps; here episodes end amid the second of three rollouts."""
    assert propose(replace(BRIEF, converged_share=0.0, min_steps=31), oracle, history).log["steps"] == 32


@pytest.mark.guard
def test_where_episodes_begin(history, oracle):
    explorers = {begin: replace(BRIEF, begin=begin).start(history.space) for begin in ("last", "best", "random")}
    for explorer in explorers.values():
        explorer.propose(oracle, history, np.random.default_rng(0))
    begun = {begin: explorer._begin(history, np.random.default_rng(1)) for begin, explorer in explorers.items()}
    assert {len(vectors) for vectors in begun.values()} == {BRIEF.n_episodes}
    np.testing.assert_array_equal(begun["last"], explorers["last"]._last)
    ranking = np.argsort(-history.gflops, kind="stable")[: BRIEF.n_episodes // 2]
    np.testing.assert_array_equal(begun["best"][: len(ranking)], history.vectors[ranking])
    random = history.space.sample(BRIEF.n_episodes, np.random.default_rng(1))
    np.testing.assert_array_equal(begun["random"], random)


def test_the_search_ends_when_all_configs_are_scored(formula):
    small = formula("handful")
    candidates = propose(PPO(), Oracle(small, 1e-3).start(small.space), small.history(3))
    assert len(candidates.vectors) == 5 and candidates.log["steps"] == 0


def test_a_fitted_surrogate_over_a_single_config():
    space = space_of([1])
    constant_oracle = OracleSurrogate(space, lambda vectors: np.ones(len(vectors)))
    assert propose(PPO(), constant_oracle, history_of(space)).vectors.tolist() == [[0]]
    assert len(propose(PPO(), constant_oracle, history_of(space, [[0]])).vectors) == 0


def test_restores_the_state_of_torch(history, oracle):
    before, n_threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        propose(BRIEF, oracle, history)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(n_threads)
    assert torch.equal(torch.get_rng_state(), before)
