"""An oracle in place of a surrogate: it knows every speed, so that only the explorer makes a difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import History, Surrogate
from anole.space.space import Space, Vectors
from anole.testing.formulas import Formula


@dataclass(frozen=True)
class Oracle:
    """Scores configs by a formula.

    Attributes:
        formula: the formula.
        best_s: the least latency, whose score is 1.
    """

    name: ClassVar[str] = "oracle"

    formula: Formula
    best_s: float

    def start(self, space: Space) -> Surrogate:
        """Returns the surrogate, which needs no fit."""
        return _OracleSurrogate(self, space)


class _OracleSurrogate:
    fitted = True

    def __init__(self, settings: Oracle, space: Space) -> None:
        self.settings, self.space = settings, space

    def fit(self, history: History) -> None:
        """Learns nothing, since there is nothing left to learn."""

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        costs_s = self.settings.formula.cost_s(self.space.columns(vectors))
        return np.asarray(self.settings.best_s / np.nan_to_num(costs_s, nan=np.inf))

    def spread(self, vectors: Vectors) -> NDArray[np.float64]:
        return np.zeros(len(vectors))
