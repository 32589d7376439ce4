"""Propose configs in order of decreasing merit (an analytical estimate of speed), without learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from anole.search.explore.random import draw
from anole.search.roles import Candidates, History, Surrogate
from anole.search.settings import Range, Stateless


@dataclass(frozen=True)
class ByMerit(Stateless):
    """An explorer that proposes unmeasured configs with the highest merit, or random ones if the space has no merit.

    A space that can be enumerated is sorted completely; other spaces are sampled. Our own method, not from a paper: the
    baseline for searches that learn.

    Attributes:
        n_candidates: number of proposed configs.
    """

    name: ClassVar[str] = "by_merit"

    n_candidates: Annotated[int, Range(1)] = 256

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return the candidates, with zero scores."""
        vectors = history.space.top_by_merit(self.n_candidates, rng, exclude=history.visited)
        if not len(vectors):
            return draw(history, self.n_candidates, rng)
        return Candidates(vectors, np.zeros(len(vectors)))
