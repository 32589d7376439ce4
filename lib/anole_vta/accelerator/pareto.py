"""Fronts of several objectives, all to be minimized: their points and their knees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
"""Objectives of n points, shape (n, n_objectives); all above 0."""


def on_front(points: Points) -> NDArray[np.bool_]:
    """Return which points no other one is at most as large as in all objectives, shape (n,); the first of equal ones.

    Infinite points are on no front.
    """
    kept = np.zeros(len(points), dtype=bool)
    front = np.empty((0, points.shape[1]))
    for row in np.lexsort(points.T[::-1]).tolist():
        point = points[row]
        # What could dominate it comes before it.
        if np.isfinite(point).all() and not (front <= point).all(axis=1).any():
            kept[row] = True
            front = np.vstack([front, point])
    return kept


def knee(points: Points) -> int:
    """Return the point with the least product of its objectives.

    There, a front on logarithmic axes turns from more to less than one per cent of one objective for one of another.
    """
    return int(np.argmin(np.log(points).sum(axis=1)))
