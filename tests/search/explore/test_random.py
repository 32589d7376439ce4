"""Random search: uniform over the valid configs."""

from __future__ import annotations

import numpy as np

from anole.search.explore.random import Random
from anole.search.surrogate.none import NoSurrogate


def test_valid_configs_are_sampled_uniformly(formula):
    small, rng = formula("handful"), np.random.default_rng(0)
    sampled = [Random(n_candidates=2).propose(NoSurrogate(), small.history(0), rng).vectors for _ in range(2000)]
    indices, counts = np.unique(small.space.indices(np.concatenate(sampled)), return_counts=True)
    np.testing.assert_array_equal(indices, small.space.valid_indices)
    assert counts.sum() == 4000 and np.abs(counts - 500).max() < 100
