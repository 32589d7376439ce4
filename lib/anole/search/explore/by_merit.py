"""The list by merit: configs as they are expected to be fast before anything is measured, without learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from anole.search.explore.random import draw
from anole.search.roles import Candidates, History, Surrogate
from anole.search.settings import Range, Stateless


@dataclass(frozen=True)
class ByMerit(Stateless):
    """Proposes the unmeasured configs of most merit, the best first; uniform ones where a space has no merit.

    A space that can be enumerated is sorted as a whole; of others, many configs are drawn. Our own method, not from a
    paper: what a search that learns has to beat.

    Attributes:
        n_candidates: number of proposed configs.
    """

    name: ClassVar[str] = "by_merit"

    n_candidates: Annotated[int, Range(1)] = 256

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return the candidates, whose scores are zero, for nothing was predicted."""
        vectors = history.space.foremost(self.n_candidates, rng, exclude=history.visited)
        if not len(vectors):
            return draw(history, self.n_candidates, rng)
        return Candidates(vectors, np.zeros(len(vectors)))
