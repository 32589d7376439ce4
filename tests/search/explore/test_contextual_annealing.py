"""Contextual annealing: the walk is annealing's, the share left to chance follows the surrogate's doubt."""

from __future__ import annotations

import numpy as np
import pytest

from anole.search.explore.annealing import Annealing
from anole.search.explore.contextual_annealing import ContextualAnnealing
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.search.surrogate.forest import Forest


class Doubtful:
    """A surrogate that likes small indices, and doubts as told: a number, or a function of vectors."""

    fitted = True

    def __init__(self, spread):
        self._spread, self.probes = spread, []

    def score(self, vectors):
        return 1.0 / (1.0 + vectors.sum(axis=1))

    def spread(self, vectors):
        self.probes.append(vectors)
        return self._spread(vectors) if callable(self._spread) else np.full(len(vectors), self._spread)


@pytest.fixture
def history(formula):
    return formula("bowl").history(80)


def propose(surrogate, history, **settings):
    explorer = ContextualAnnealing(**settings).start(history.space)
    return explorer.propose(surrogate, history, np.random.default_rng(0))


def test_epsilon_is_the_mean_spread_of_random_unmeasured_configs(history):
    surrogate = Doubtful(lambda vectors: 0.01 * vectors[:, 0])
    candidates = propose(surrogate, history)
    (probes,) = surrogate.probes
    assert probes.shape == (20, len(history.space.knobs))
    assert not np.isin(history.space.indices(probes), history.visited).any()
    assert candidates.epsilon == candidates.log["epsilon"] == pytest.approx(0.01 * probes[:, 0].mean())
    assert len(propose(surrogate, history, n_probes=5).vectors) and len(surrogate.probes[-1]) == 5


@pytest.mark.parametrize(("spread", "epsilon"), [(0.0, 0.0), (0.3, 0.3), (7.0, 1.0)])
def test_epsilon_is_a_share(history, spread, epsilon):
    assert propose(Doubtful(spread), history).epsilon == pytest.approx(epsilon)


def test_the_walk_is_annealings(history):
    surrogate = Forest().start(history.space)
    surrogate.fit(history)
    annealed = Annealing().start(history.space).propose(surrogate, history, np.random.default_rng(0))
    candidates = propose(surrogate, history)
    np.testing.assert_array_equal(candidates.vectors, annealed.vectors)
    assert annealed.epsilon is None and 0 < candidates.epsilon < 1
    assert {**annealed.log, "epsilon": candidates.epsilon} == candidates.log


def test_a_surrogate_without_doubt_leaves_nothing_to_chance(history):
    surrogate = BoostedTrees(max_rounds=5).start(history.space)
    surrogate.fit(history)
    assert propose(surrogate, history, n_steps=5).epsilon == 0.0


def test_before_the_first_fit_the_sampler_decides(history):
    assert propose(Forest().start(history.space), history).epsilon is None


def test_with_nothing_left_to_probe(formula):
    exhausted = formula("handful").history(8)
    assert propose(Doubtful(0.5), exhausted).epsilon == 0.0
