"""Random search: configs sampled uniformly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from anole.search.roles import Candidates, History, Surrogate
from anole.search.settings import Range, Stateless


@dataclass(frozen=True)
class Random(Stateless):
    """An explorer that samples valid, unmeasured configs uniformly, without a surrogate.

    Attributes:
        n_candidates: number of configs sampled per iteration; the default is the largest possible batch.
    """

    name: ClassVar[str] = "random"

    n_candidates: Annotated[int, Range(1)] = 256

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return uniformly random candidates."""
        return draw(history, self.n_candidates, rng)


def draw(history: History, n: int, rng: np.random.Generator) -> Candidates:
    """Return n uniformly random candidates, or all remaining configs if these are fewer, with zero scores."""
    vectors = history.space.sample(n, rng, exclude=history.visited)
    return Candidates(vectors, np.zeros(len(vectors)))
