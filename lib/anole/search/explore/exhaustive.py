"""Every program of a space, once: for simulators, whose trials are exact and cost little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from anole.search.explore.by_merit import ByMerit
from anole.search.roles import Candidates, History, Surrogate
from anole.search.settings import Range, Stateless

_MAX_CONFIGS = 1 << 26
"""The most configs of a space that is enumerated, which takes a minute or so; others are searched at random."""


@dataclass(frozen=True)
class Exhaustive(Stateless):
    """Proposes what was not measured, that of most merit first, until nothing is left.

    Our own method, not from a paper: with it, an optimum is known and not only found.

    Attributes:
        n_candidates: number of configs proposed at once.
    """

    name: ClassVar[str] = "exhaustive"

    n_candidates: Annotated[int, Range(1)] = 256

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return the candidates, whose scores are zero, for nothing was predicted."""
        if history.space.size <= _MAX_CONFIGS:
            history.space.enumerate()
        return ByMerit(self.n_candidates).propose(surrogate, history, rng)
