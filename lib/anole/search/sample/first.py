"""Takes the first candidates, for explorers that order them as they should be measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anole.search.roles import Candidates, History, Sampler
from anole.space.space import Space, Vectors


@dataclass(frozen=True)
class First:
    """Chooses the first candidates in the explorer's order."""

    name: ClassVar[str] = "first"

    def start(self, space: Space) -> Sampler:
        """Returns the sampler, ready to tune one task."""
        return _FirstSampler()


class _FirstSampler:
    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        return candidates.vectors[:n]
