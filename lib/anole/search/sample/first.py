"""The sampler that takes the top candidates, for explorers that order them by priority."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anole.search.roles import Candidates, History
from anole.search.settings import Stateless
from anole.space.space import Vectors


@dataclass(frozen=True)
class First(Stateless):
    """A sampler that chooses the first candidates in the explorer's order."""

    name: ClassVar[str] = "first"

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Return the first n candidates."""
        return candidates.vectors[:n]
