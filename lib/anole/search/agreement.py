"""How well a surrogate ranked a batch before it was measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_LEAST = 4
"""So few configs are ranked rightly by chance too often to tell anything."""


def rank_correlation(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float | None:
    """Returns Spearman's rank correlation of two figures of the same configs; equal figures share their mean rank.

    Args:
        predicted: scores, shape (n,).
        measured: speeds, shape (n,); 0 for a failure.

    Returns:
        A number from -1 to 1; None for fewer than four configs, and where all scores or all speeds are equal.
    """
    if len(predicted) < _LEAST:
        return None
    one, other = (_ranks(figures) - (len(figures) - 1) / 2 for figures in (predicted, measured))
    norm = np.sqrt((one @ one) * (other @ other))
    return float(one @ other / norm) if norm else None


def _ranks(figures: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the mean rank of each figure, from 0, shape (n,)."""
    _, places, counts = np.unique(figures, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[places]
    return ranks
