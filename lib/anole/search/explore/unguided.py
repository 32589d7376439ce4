"""Explorers without a surrogate: random configs, configs in order of their merit, or all configs of a space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from anole.search.roles import Candidates, History, Surrogate
from anole.search.settings import Range, Stateless

_MAX_CONFIGS = 1 << 26
"""Max size of a space to enumerate, which takes about a minute; larger ones are sampled."""


@dataclass(frozen=True)
class _Unguided(Stateless):
    """Settings of these explorers.

    Attributes:
        n_candidates: number of configs proposed per iteration; the default is the largest possible batch.
    """

    n_candidates: Annotated[int, Range(1)] = 256


@dataclass(frozen=True)
class Random(_Unguided):
    """An explorer that samples valid, unmeasured configs uniformly."""

    name: ClassVar[str] = "random"

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return uniformly random candidates."""
        return draw(history, self.n_candidates, rng)


@dataclass(frozen=True)
class ByMerit(_Unguided):
    """An explorer that proposes unmeasured configs with the highest merit, or random ones if the space has no merit.

    A space that can be enumerated is sorted completely; other spaces are sampled. Our own method, not from a paper: the
    baseline for searches that learn.
    """

    name: ClassVar[str] = "by_merit"

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return the candidates, with zero scores."""
        vectors = history.space.top_by_merit(self.n_candidates, rng, exclude=history.visited)
        if not len(vectors):
            return draw(history, self.n_candidates, rng)
        return Candidates(vectors, np.zeros(len(vectors)))


@dataclass(frozen=True)
class Exhaustive(_Unguided):
    """An explorer that proposes all unmeasured configs by decreasing merit, until none is left.

    Our own method, not from a paper: it proves that the best config found is the optimum, for simulators, whose trials
    are exact and cheap.
    """

    name: ClassVar[str] = "exhaustive"

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return the candidates, with zero scores."""
        space = history.space
        choose = space.sample if space.merit is None else space.top_by_merit
        vectors = choose(self.n_candidates, rng, history.visited, from_all=space.size <= _MAX_CONFIGS)
        return Candidates(vectors, np.zeros(len(vectors)))


def draw(history: History, n: int, rng: np.random.Generator) -> Candidates:
    """Return n uniformly random candidates, or all remaining configs if these are fewer, with zero scores."""
    vectors = history.space.sample(n, rng, exclude=history.visited)
    return Candidates(vectors, np.zeros(len(vectors)))
