"""The score of searches with several objectives: the volume that what they found dominates."""

from __future__ import annotations

import numpy as np

from anole_vta.accelerator.pareto import Points

_MARGIN = 1.1
"""How far the reference lies beyond the worst of the front, in its extent; so the front's ends count, too."""


def hypervolume(points: Points, front: Points) -> float:
    """Return the share of the volume above a front that points dominate; 1 for the front itself.

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
    """Return the volume of the union of boxes from the origin to each corner, by slices along the last axis."""
    corners = corners[(corners > 0).all(axis=1)]
    if corners.shape[1] == 1 or not len(corners):
        return float(corners.max(initial=0.0))
    corners = corners[np.argsort(-corners[:, -1])]
    below = np.append(corners[1:, -1], 0.0)
    heights: list[float] = (corners[:, -1] - below).tolist()
    return sum(height * _volume(corners[: n + 1, :-1]) for n, height in enumerate(heights) if height > 0)
