"""Random search: uniform over the valid configs."""

from __future__ import annotations

import numpy as np

from anole.search.explore.random import Random
from anole.search.roles import History
from anole.search.surrogate.blind import Blind


def test_every_valid_config_is_as_likely(formula):
    small = formula("handful")
    explorer, history = Random(n_candidates=1).start(small.space), History(small.space, small.flop)
    rng = np.random.default_rng(0)
    drawn = [explorer.propose(Blind().start(small.space), history, rng).vectors for _ in range(4000)]
    indices, counts = np.unique(small.space.indices(np.concatenate(drawn)), return_counts=True)
    np.testing.assert_array_equal(indices, small.space.valid_indices)
    assert np.abs(counts - 500).max() < 100


def test_draws_as_many_as_it_is_set_to(formula):
    bowl = formula("bowl")
    explorer = Random(n_candidates=17).start(bowl.space)
    assert len(explorer.propose(Blind().start(bowl.space), bowl.history(5), np.random.default_rng(0)).vectors) == 17
