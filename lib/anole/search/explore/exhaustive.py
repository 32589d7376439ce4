"""Exhaustive search: every program of a space, once; for simulators, whose trials are exact and cheap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from anole.search.roles import Candidates, History, Surrogate
from anole.search.settings import Range, Stateless

_MAX_CONFIGS = 1 << 26
"""Max size of a space to enumerate, which takes about a minute; larger ones are sampled."""


@dataclass(frozen=True)
class Exhaustive(Stateless):
    """An explorer that proposes all unmeasured configs by decreasing merit, until none is left.

    Our own method, not from a paper: it proves that the best config found is the optimum.

    Attributes:
        n_candidates: number of configs in each proposal.
    """

    name: ClassVar[str] = "exhaustive"

    n_candidates: Annotated[int, Range(1)] = 256

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return the candidates, with zero scores."""
        space = history.space
        choose = space.sample if space.merit is None else space.top_by_merit
        vectors = choose(self.n_candidates, rng, history.visited, from_all=space.size <= _MAX_CONFIGS)
        return Candidates(vectors, np.zeros(len(vectors)))
