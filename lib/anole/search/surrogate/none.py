"""The null surrogate, for searches without predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import History
from anole.search.settings import Stateless
from anole.space.space import Vectors


@dataclass(frozen=True)
class NoSurrogate(Stateless):
    """A surrogate that is never fitted; explorers propose what they propose before a first fit."""

    name: ClassVar[str] = "none"
    fitted: ClassVar[bool] = False

    def fit(self, history: History) -> None:
        """Learn nothing."""

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return zeros, shape (n,)."""
        return np.zeros(len(vectors))

    spread = score
