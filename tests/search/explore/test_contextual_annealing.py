"""Contextual annealing: the walk is annealing's, the share left to chance follows the surrogate's doubt."""

from __future__ import annotations

import numpy as np
import pytest

from anole.search.explore.annealing import Annealing
from anole.search.explore.contextual_annealing import ContextualAnnealing
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.search.surrogate.forest import Forest
from kit.oracle import Knowing

from ..conftest import fitted, propose


class Doubtful(Knowing):
    """A surrogate that likes small indices, and doubts as told: a number, or a function of vectors."""

    def __init__(self, space, doubt):
        super().__init__(space, lambda vectors: 1.0 / (1.0 + vectors.sum(axis=1)))
        self.doubt, self.probes = doubt, []

    def spread(self, vectors):
        self.probes.append(vectors)
        return self.doubt(vectors) if callable(self.doubt) else np.full(len(vectors), self.doubt)


@pytest.fixture
def history(bowl):
    return bowl.history(80)


def test_epsilon_is_the_mean_spread_of_random_unmeasured_configs(history):
    surrogate = Doubtful(history.space, lambda vectors: 0.01 * vectors[:, 0])
    candidates = propose(ContextualAnnealing(), surrogate, history)
    (probes,) = surrogate.probes
    assert probes.shape == (20, len(history.space.knobs))
    assert not np.isin(history.space.indices(probes), history.visited).any()
    assert candidates.epsilon == candidates.log["epsilon"] == pytest.approx(0.01 * probes[:, 0].mean())
    propose(ContextualAnnealing(n_probes=5), surrogate, history)
    assert len(surrogate.probes[-1]) == 5


@pytest.mark.parametrize(("spread", "epsilon"), [(0.0, 0.0), (0.3, 0.3), (7.0, 1.0)])
def test_epsilon_is_a_share(history, spread, epsilon):
    candidates = propose(ContextualAnnealing(n_steps=5), Doubtful(history.space, spread), history)
    assert candidates.epsilon == pytest.approx(epsilon)


def test_the_walk_is_annealings(history):
    surrogate = fitted(Forest(), history)
    annealed, candidates = (propose(explorer, surrogate, history) for explorer in (Annealing(), ContextualAnnealing()))
    np.testing.assert_array_equal(candidates.vectors, annealed.vectors)
    assert annealed.epsilon is None and 0 < candidates.epsilon < 1
    assert {**annealed.log, "epsilon": candidates.epsilon} == candidates.log


def test_a_surrogate_without_doubt_leaves_nothing_to_chance_and_an_unfitted_one_leaves_it_to_the_sampler(history):
    surrogate = fitted(BoostedTrees(max_rounds=5), history)
    assert propose(ContextualAnnealing(n_steps=5), surrogate, history).epsilon == 0.0
    assert propose(ContextualAnnealing(), Forest().start(history.space), history).epsilon is None


def test_with_nothing_left_to_probe(formula):
    exhausted = formula("handful").history(8)
    assert propose(ContextualAnnealing(), Doubtful(exhausted.space, 0.5), exhausted).epsilon == 0.0
