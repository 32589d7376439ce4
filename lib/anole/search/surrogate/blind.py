"""The surrogate that predicts nothing, for searches without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import History, Surrogate
from anole.space.space import Space, Vectors


@dataclass(frozen=True)
class Blind:
    """Learns nothing, so that every explorer draws uniformly."""

    name: ClassVar[str] = "none"

    def start(self, space: Space) -> Surrogate:
        """Returns the surrogate, ready to tune one task."""
        return _BlindSurrogate()


class _BlindSurrogate:
    fitted = False

    def fit(self, history: History) -> None:
        pass

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        return np.zeros(len(vectors))

    def spread(self, vectors: Vectors) -> NDArray[np.float64]:
        return np.zeros(len(vectors))
