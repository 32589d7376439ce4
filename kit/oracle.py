"""Surrogates that know the true speed of every config, to compare explorers."""

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


class OracleSurrogate:
    """A surrogate that scores index vectors by a function, `truth`, and counts how often each config was scored."""

    fitted = True

    def __init__(self, space: Space, truth: Callable[[Vectors], NDArray[np.float64]]) -> None:
        self.space, self.truth, self.asked = space, truth, Counter[int]()

    def fit(self, history: History) -> None:
        """Do nothing; the surrogate is exact."""

    def score(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return the true speeds."""
        self.asked.update(self.space.indices(vectors).tolist())
        return self.truth(vectors)

    def spread(self, vectors: Vectors) -> NDArray[np.float64]:
        """Return zeros, since true speeds have no uncertainty."""
        return np.zeros(len(vectors))


@dataclass(frozen=True)
class Oracle:
    """A surrogate factory that scores configs by a formula.

    Attributes:
        formula: the cost of a config in seconds.
        best_s: the lowest cost, whose score is 1.
    """

    name: ClassVar[str] = "oracle"

    formula: Formula
    best_s: float

    def start(self, space: Space) -> OracleSurrogate:
        """Return a surrogate, which needs no fit."""

        def relative_speed(vectors: Vectors) -> NDArray[np.float64]:
            costs_s = self.formula.cost_s(space.columns(vectors))
            return np.asarray(self.best_s / np.nan_to_num(costs_s, nan=np.inf))

        return OracleSurrogate(space, relative_speed)
