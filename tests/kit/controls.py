"""Controls for comparisons of samplers: batches of given sizes, chosen greedily or at random among the best.

A sampler that decides how much is measured also decides how often the surrogate learns. Beside a control with the sizes
of its own batches, only what it chooses makes a difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anole.search.roles import Candidates, History, Sampler
from anole.search.sample.epsilon_greedy import EpsilonGreedy
from anole.space.space import Space, Vectors


@dataclass(frozen=True)
class SizedGreedy(EpsilonGreedy):
    """Epsilon-greedy sampling in batches of given sizes.

    Attributes:
        sizes: the sizes of the batches in order; what follows them has the size that is asked for.
    """

    name: ClassVar[str] = "sized_greedy"

    sizes: tuple[int, ...] = ()

    def start(self, space: Space) -> Sampler:
        """Returns the sampler, ready to tune one task."""
        return _Sized(super().start(space), self.sizes)


@dataclass(frozen=True)
class SizedAmongBest:
    """Draws batches of given sizes uniformly among the best candidates.

    Attributes:
        n_best: number of the best candidates to draw from.
        sizes: the sizes of the batches in order; what follows them has the size that is asked for.
    """

    name: ClassVar[str] = "sized_among_best"

    n_best: int = 64
    sizes: tuple[int, ...] = ()

    def start(self, space: Space) -> Sampler:
        """Returns the sampler, ready to tune one task."""
        return _Sized(_AmongBest(self.n_best), self.sizes)


class _AmongBest:
    def __init__(self, n_best: int) -> None:
        self._n_best = n_best

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        best = candidates.vectors[: self._n_best]
        return best[rng.choice(len(best), min(n, len(best)), replace=False)]


class _Sized:
    """Asks another sampler for the batch whose turn it is; the number of measured configs says which that is."""

    def __init__(self, sampler: Sampler, sizes: tuple[int, ...]) -> None:
        self._sampler, self._ends = sampler, np.cumsum(sizes, dtype=np.int64)

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        batch = int(np.searchsorted(self._ends, len(history), side="right"))
        size = int(self._ends[batch]) - len(history) if batch < len(self._ends) else n
        return self._sampler.choose(candidates, history, min(n, size), rng)
