"""Pareto fronts, and the points with the lowest product of objectives; all objectives are minimized."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
"""Objectives of n points, shape (n, n_objectives); all positive."""


def front_mask(points: Points) -> NDArray[np.bool_]:
    """Return a mask of the points that no other point dominates, shape (n,).

    Of equal points, only the first is kept. Points with infinite objectives are never kept.
    """
    is_on_front = np.zeros(len(points), dtype=bool)
    front = np.empty((0, points.shape[1]))
    for row in np.lexsort(points.T[::-1]).tolist():
        point = points[row]
        # In lexicographic order, only earlier points can dominate a point.
        if np.isfinite(point).all() and not (front <= point).all(axis=1).any():
            is_on_front[row] = True
            front = np.vstack([front, point])
    return is_on_front


def knee(points: Points) -> int:
    """Return the index of the point with the smallest product of its objectives.

    On a log-log plot, the slope of the front passes -1 there: 1 % less of one objective costs 1 % more of another.
    """
    return int(np.argmin(np.log(points).sum(axis=1)))
