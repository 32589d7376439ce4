"""The merit of a space as a surrogate's margin: what boosting begins from, and corrects."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import History
from anole.space.space import Space, Vectors

_DRAWN = 1024
"""Number of configs among which the best stands for the best of the space before the first trial."""


class MeritMargin:
    """The speed that a merit expects, relative to the best known.

    Args:
        space: a space whose merit is a speed.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._unit = float(self._expected(space.sample(_DRAWN, np.random.default_rng(0))).max(initial=0.0)) or 1.0

    def fit(self, history: History) -> None:
        """Makes the merit's unit that of the measured speeds; without a success it stays as it is.

        What a merit leaves out is a factor, and differs between configs. The median of these factors counts.
        """
        expected = self._expected(history.vectors)
        known = (history.gflops > 0) & (expected > 0)
        if known.any():
            self._unit = float(history.best_gflops * np.median(expected[known] / history.gflops[known]))

    def __call__(self, vectors: Vectors) -> NDArray[np.float64]:
        """Returns the margins of index vectors, shape (n,); the best known has about 1."""
        return np.asarray(self._expected(vectors) / self._unit)

    def _expected(self, vectors: Vectors) -> NDArray[np.float64]:
        assert self._space.merit is not None
        return np.asarray(self._space.merit(self._space.columns(vectors)), dtype=np.float64)
