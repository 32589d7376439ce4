"""Fronts of several objectives, all to be minimised: their points, their knees and the volume above them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
"""Objectives of n points, shape (n, n_objectives); all above 0."""

_MARGIN = 1.1
"""How far the reference lies beyond the worst of the front, in its extent; so the front's ends count, too."""


def on_front(points: Points) -> NDArray[np.bool_]:
    """Returns which points no other one is at most as large as in all objectives, shape (n,); the first of equal ones.

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
    """Returns the point with the least product of its objectives.

    There, a front on logarithmic axes turns from more to less than one per cent of one objective for one of another.
    """
    return int(np.argmin(np.log(points).sum(axis=1)))


def hypervolume(points: Points, front: Points) -> float:
    """Returns the share of the volume above a front that points dominate; 1 for the front itself.

    Axes are logarithmic. The volume ends a tenth of the front's extent beyond its worst objectives. This is the usual
    score of searches with several objectives (Zitzler and Thiele, 1999).
    """
    least, most = np.log(front.min(axis=0)), np.log(front.max(axis=0))
    extent = np.where(most > least, most - least, 1.0)

    def volume(of: Points) -> float:
        finite = of[np.isfinite(of).all(axis=1)]
        return _volume(_MARGIN - np.maximum(0.0, (np.log(finite) - least) / extent))

    return volume(points) / volume(front)


def _volume(corners: Points) -> float:
    """Returns the volume of the union of boxes from the origin to each corner, by slices along the last axis."""
    corners = corners[(corners > 0).all(axis=1)]
    if corners.shape[1] == 1 or not len(corners):
        return float(corners.max(initial=0.0))
    corners = corners[np.argsort(-corners[:, -1])]
    below = np.append(corners[1:, -1], 0.0)
    heights: list[float] = (corners[:, -1] - below).tolist()
    return sum(height * _volume(corners[: n + 1, :-1]) for n, height in enumerate(heights) if height > 0)
