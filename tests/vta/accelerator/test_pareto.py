"""Pareto fronts and knees, against definitions over every pair."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anole_vta.accelerator.pareto import front_mask, knee

CLOUDS = (
    st.integers(1, 3)
    .flatmap(lambda n: st.lists(st.tuples(*[st.integers(0, 5)] * n), min_size=1, max_size=12))
    .map(lambda rows: 2.0 ** np.array(rows, dtype=float))
)


@given(CLOUDS)
def test_no_other_point_dominates_a_front(points):
    kept = points[front_mask(points)]
    for point in points:
        reached = (kept <= point).all(axis=1)
        assert reached.any()
    for one, other in itertools.permutations(kept, 2):
        assert not (one <= other).all()


def test_infinite_points_are_on_no_front():
    assert front_mask(np.array([[1.0, math.inf], [2.0, 3.0]])).tolist() == [False, True]


def test_at_a_knee_one_percent_costs_one_percent():
    assert knee(np.array([[1.0, 10.0], [2.0, 4.0], [6.0, 3.0], [12.0, 2.9]])) == 1
