"""Controls for comparisons of searches: batches with given sizes, chosen greedily, and a perfect explorer.

A sampler that chooses batch sizes also determines how often the surrogate learns. A control with the same batch sizes
isolates the effect of the chosen configs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from anole.search.explore.unguided import draw
from anole.search.roles import Candidates, History, Surrogate
from anole.search.sample.epsilon_greedy import EpsilonGreedy
from anole.search.settings import Stateless
from anole.space.space import Vectors


@dataclass(frozen=True)
class PerfectExplorer(Stateless):
    """An explorer that proposes the configs with the highest scores in the entire space."""

    name: ClassVar[str] = "perfect"

    n_candidates: int = 64

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return the candidates; before the surrogate's first fit, sample them uniformly."""
        if not surrogate.fitted:
            return draw(history, self.n_candidates, rng)
        vectors = history.space.sample(history.space.size, rng, exclude=history.visited)
        scores = surrogate.score(vectors)
        best = np.argsort(-scores, kind="stable")[: self.n_candidates]
        return Candidates(vectors[best], scores[best], {"queries": float(len(vectors))})


@dataclass(frozen=True)
class SizedGreedy(EpsilonGreedy):
    """Epsilon-greedy sampling in batches of given sizes.

    Attributes:
        sizes: the sizes of the first batches in order; later batches have the requested size.
    """

    name: ClassVar[str] = "sized_greedy"

    sizes: tuple[int, ...] = ()

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Return a batch of the next size, with at least one greedy config."""
        size = _size(self.sizes, history, n)
        sampler = replace(self, least_random=min(self.least_random, size - 1))
        return EpsilonGreedy.choose(sampler, candidates, history, size, rng)


def _size(sizes: tuple[int, ...], history: History, n: int) -> int:
    """Return the size of the next batch, at most n, which follows from the number of measured configs."""
    totals = np.cumsum(sizes, dtype=np.int64)
    batch = int(np.searchsorted(totals, len(history), side="right"))
    return min(n, int(totals[batch]) - len(history)) if batch < len(totals) else n
