"""The hypervolume indicator: the volume that the points of a multi-objective search dominate."""

from __future__ import annotations

import numpy as np

from anole_vta.accelerator.pareto import Points

_MARGIN = 1.1
"""The reference point, in units of the front's range; above 1, so the ends of the front contribute volume."""


def hypervolume(points: Points, front: Points) -> float:
    """Return the hypervolume of points relative to the hypervolume of a front.

    Axes are logarithmic. The reference point is a tenth of the front's range beyond its worst objectives. This is the
    standard score of multi-objective searches (Zitzler and Thiele, 1999).
    """
    low, high = np.log(front.min(axis=0)), np.log(front.max(axis=0))
    ranges = np.where(high > low, high - low, 1.0)

    def volume(objectives: Points) -> float:
        finite = objectives[np.isfinite(objectives).all(axis=1)]
        return _volume(_MARGIN - np.maximum(0.0, (np.log(finite) - low) / ranges))

    return volume(points) / volume(front)


def _volume(corners: Points) -> float:
    """Return the volume of the union of boxes from the origin to each corner, by slices along the last axis."""
    corners = corners[(corners > 0).all(axis=1)]
    if corners.shape[1] == 1 or not len(corners):
        return float(corners.max(initial=0.0))
    corners = corners[np.argsort(-corners[:, -1])]
    next_tops = np.append(corners[1:, -1], 0.0)
    heights: list[float] = (corners[:, -1] - next_tops).tolist()
    return sum(height * _volume(corners[: n + 1, :-1]) for n, height in enumerate(heights) if height > 0)
