"""No sampling at all, for explorers whose candidates are in the order in which they should be measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anole.search.roles import Candidates, History, Sampler
from anole.space.space import Space, Vectors


@dataclass(frozen=True)
class First:
    """The candidates in the order in which they come."""

    name: ClassVar[str] = "first"

    def start(self, space: Space) -> Sampler:
        """Returns the sampler, ready to tune one task."""
        return _FirstSampler()


class _FirstSampler:
    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        return candidates.vectors[:n]
