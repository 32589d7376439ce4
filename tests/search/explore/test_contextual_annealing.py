"""Contextual annealing: the same walk as annealing, with a random share that follows the surrogate's uncertainty."""

import numpy as np
import pytest

from anole.search.explore.annealing import Annealing
from anole.search.explore.contextual_annealing import ContextualAnnealing
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.search.surrogate.forest import Forest
from kit.oracle import OracleSurrogate

from ..conftest import fit, propose


class UncertainSurrogate(OracleSurrogate):
    """A surrogate that prefers small indices, with a given uncertainty: a number, or a function of vectors."""

    def __init__(self, space, uncertainty):
        super().__init__(space, lambda vectors: 1.0 / (1.0 + vectors.sum(axis=1)))
        self.uncertainty, self.probes = uncertainty, []

    def spread(self, vectors):
        self.probes.append(vectors)
        return self.uncertainty(vectors) if callable(self.uncertainty) else np.full(len(vectors), self.uncertainty)


@pytest.fixture
def history(bowl):
    return bowl.history(80)


def test_epsilon_is_the_mean_spread_of_random_unmeasured_configs(history):
    surrogate = UncertainSurrogate(history.space, lambda vectors: 0.01 * vectors[:, 0])
    candidates = propose(ContextualAnnealing(), surrogate, history)
    (probes,) = surrogate.probes
    assert probes.shape == (20, len(history.space.knobs))
    assert not np.isin(history.space.indices(probes), history.visited).any()
    assert candidates.epsilon == candidates.log["epsilon"] == pytest.approx(0.01 * probes[:, 0].mean())
    propose(ContextualAnnealing(n_probes=5), surrogate, history)
    assert len(surrogate.probes[-1]) == 5


@pytest.mark.parametrize(("spread", "epsilon"), [(0.0, 0.0), (0.3, 0.3), (7.0, 1.0)])
def test_epsilon_is_clipped_to_a_share(history, spread, epsilon):
    candidates = propose(ContextualAnnealing(n_steps=5), UncertainSurrogate(history.space, spread), history)
    assert candidates.epsilon == pytest.approx(epsilon)


def test_the_walk_is_annealings(history):
    surrogate = fit(Forest(), history)
    annealed, candidates = (propose(explorer, surrogate, history) for explorer in (Annealing(), ContextualAnnealing()))
    np.testing.assert_array_equal(candidates.vectors, annealed.vectors)
    assert annealed.epsilon is None and 0 < candidates.epsilon < 1
    assert {**annealed.log, "epsilon": candidates.epsilon} == candidates.log


def test_epsilon_is_0_without_a_spread_and_none_without_a_fit(history):
    surrogate = fit(BoostedTrees(max_rounds=5), history)
    assert propose(ContextualAnnealing(n_steps=5), surrogate, history).epsilon == 0.0
    assert propose(ContextualAnnealing(), Forest().start(history.space), history).epsilon is None


def test_epsilon_is_0_if_nothing_is_left_to_probe(formula):
    exhausted = formula("handful").history(8)
    assert propose(ContextualAnnealing(), UncertainSurrogate(exhausted.space, 0.5), exhausted).epsilon == 0.0
