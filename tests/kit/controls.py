"""Controls for comparisons: batches of given sizes, chosen greedily or at random, and a perfect explorer.

A sampler that decides how much is measured also decides how often the surrogate learns. Beside a control with the sizes
of its own batches, only what it chooses makes a difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anole.search.explore.random import draw
from anole.search.roles import Candidates, History, Surrogate
from anole.search.sample.epsilon_greedy import EpsilonGreedy
from anole.search.settings import Stateless
from anole.space.space import Vectors


@dataclass(frozen=True)
class Perfect(Stateless):
    """Proposes the configs that the surrogate likes best of all in the space: what every explorer tries to find."""

    name: ClassVar[str] = "perfect"

    n_candidates: int = 64

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Returns the candidates; before the surrogate's first fit they are drawn uniformly."""
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
        sizes: the sizes of the batches in order; what follows them has the size that is asked for.
    """

    name: ClassVar[str] = "sized_greedy"

    sizes: tuple[int, ...] = ()

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Returns a batch of the size whose turn it is."""
        return super().choose(candidates, history, _size(self.sizes, history, n), rng)


@dataclass(frozen=True)
class SizedAmongBest(Stateless):
    """Draws batches of given sizes uniformly among the best candidates.

    Attributes:
        n_best: number of the best candidates to draw from.
        sizes: the sizes of the batches in order; what follows them has the size that is asked for.
    """

    name: ClassVar[str] = "sized_among_best"

    n_best: int = 64
    sizes: tuple[int, ...] = ()

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Returns a batch of the size whose turn it is."""
        best, size = candidates.vectors[: self.n_best], _size(self.sizes, history, n)
        return best[rng.choice(len(best), min(size, len(best)), replace=False)]


def _size(sizes: tuple[int, ...], history: History, n: int) -> int:
    """Returns the size of the next batch, at most n; the number of measured configs says whose turn it is."""
    ends = np.cumsum(sizes, dtype=np.int64)
    batch = int(np.searchsorted(ends, len(history), side="right"))
    return min(n, int(ends[batch]) - len(history)) if batch < len(ends) else n
