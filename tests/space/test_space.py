"""Spaces: normalized index vectors and back."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.space import Space, option_knob


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=5), st.integers(0, 99))
def test_denormalized_undoes_normalized_and_forgives_half_a_step(cardinalities, seed):
    space = Space([option_knob(f"k{at}", list(range(size))) for at, size in enumerate(cardinalities)])
    rng = np.random.default_rng(seed)
    vectors = rng.integers(0, cardinalities, size=(20, len(cardinalities)))
    points = space.normalized(vectors)
    assert points.min() >= 0 and points.max() <= 1
    nudges = rng.uniform(-0.49, 0.49, points.shape) / np.maximum(space.cardinalities - 1, 1)
    np.testing.assert_array_equal(space.denormalized(points), vectors)
    np.testing.assert_array_equal(space.denormalized((points + nudges).astype(np.float32)), vectors)
