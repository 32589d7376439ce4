"""Pareto fronts, knees and hypervolumes, against definitions over every pair and every cell."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole_vta.accelerator.pareto import front_mask, knee
from kit.hypervolume import hypervolume

from ...examples import examples

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


@settings(max_examples=examples(100), deadline=None)
@given(CLOUDS, st.data())
def test_a_hypervolume_is_the_sum_of_its_cells(points, data):
    front = points[front_mask(points)]
    some = front[data.draw(st.lists(st.integers(0, len(front) - 1), min_size=1, unique=True))]
    lowest, highest = np.log(front.min(axis=0)), np.log(front.max(axis=0))
    extents = np.where(highest > lowest, highest - lowest, 1.0)

    def volume(of):
        corners = np.minimum(1.1, (np.log(of) - lowest) / extents)
        # Between adjacent coordinates, everything is dominated by the same points.
        edges = [sorted({0.0, 1.1, *np.maximum(0, column)}) for column in ((np.log(front) - lowest) / extents).T]
        cells = itertools.product(*(list(itertools.pairwise(axis)) for axis in edges))
        return sum(
            math.prod(high - low for low, high in cell)
            for cell in cells
            if (corners <= np.array([low for low, _ in cell]) + 1e-9).all(axis=1).any()
        )

    assert hypervolume(some, front) == pytest.approx(volume(some) / volume(front))
    assert hypervolume(front, front) == 1


def test_points_beyond_the_reference_do_not_count():
    front = np.array([[1.0, 4.0], [2.0, 2.0], [4.0, 1.0]])
    assert hypervolume(np.array([[8.0, 1.0]]), front) == 0
    assert 0 < hypervolume(np.array([[4.0, 4.0]]), front) < hypervolume(np.array([[2.0, 2.0]]), front) < 1


def test_at_a_knee_one_percent_costs_one_percent():
    assert knee(np.array([[1.0, 10.0], [2.0, 4.0], [6.0, 3.0], [12.0, 2.9]])) == 1
