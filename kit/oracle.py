"""Surrogates that know every speed, so that only the explorer makes a difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import History
from anole.space.space import Space, Vectors
from anole.testing.formulas import Formula


class Knowing:
    """A surrogate that knows the truth, a function of index vectors, and counts how often it is asked for a config."""

    fitted = True

    def __init__(self, space: Space, truth: Callable[[Vectors], NDArray[np.float64]]) -> None:
        self.space, self.truth, self.asked = space, truth, Counter[int]()

    def fit(self, history: History) -> None:
        """Learn nothing, since there is nothing left to learn."""

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return the truth."""
        self.asked.update(self.space.indices(vectors).tolist())
        return self.truth(vectors)

    def spread(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return zeros: the truth has no doubt."""
        return np.zeros(len(vectors))


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

    def start(self, space: Space) -> Knowing:
        """Return the surrogate, which needs no fit."""

        def speed(vectors: Vectors) -> NDArray[np.float64]:
            costs_s = self.formula.cost_s(space.columns(vectors))
            return np.asarray(self.best_s / np.nan_to_num(costs_s, nan=np.inf))

        return Knowing(space, speed)
