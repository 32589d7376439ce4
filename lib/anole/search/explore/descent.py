"""Coordinate descent: neighbors of the fastest measured configs, mixed with the configs with the highest merit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.explore.guided_annealing import interleave
from anole.search.explore.unguided import ByMerit
from anole.search.roles import Candidates, History, Surrogate
from anole.search.sample.synthesis import take_unvisited
from anole.search.settings import Range, Stateless
from anole.space.space import Space, Vectors


@dataclass(frozen=True)
class Descent(Stateless):
    """An explorer that starts at the highest merit, then also proposes neighbors of the fastest configs so far.

    A neighbor differs in one knob, by one value. A search takes milliseconds, since it uses no surrogate. Based on
    Canesche et al., "The Droplet Search Algorithm for Kernel Scheduling" (TACO 2024), which descends from one config
    along one knob after the other; here a batch contains neighbors of several configs.

    Attributes:
        n_best: number of the fastest configs whose neighbors are proposed.
        led_share: share of neighbors in any prefix of the candidates, as long as there are enough.
        n_candidates: number of proposed configs.
    """

    name: ClassVar[str] = "descent"

    n_best: Annotated[int, Range(1)] = 4
    led_share: Annotated[float, Range(0, 1)] = 0.75
    n_candidates: Annotated[int, Range(1)] = 256

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        """Return neighbors, starting at the fastest config, mixed with configs by merit; their scores are zero."""
        space, fastest = history.space, np.argsort(-history.gflops, kind="stable")[: self.n_best]
        taken, by_merit = set(history.visited.tolist()), ByMerit(2 * self.n_candidates)
        near = chain.from_iterable(_neighbors(space, history.vectors[row]) for row in fastest if history.gflops[row])
        leading = list(islice(take_unvisited(near, taken, space), self.n_candidates))
        rest = list(take_unvisited(by_merit.propose(surrogate, history, rng).vectors, taken, space))
        neighbors, others = (np.array(part, dtype=np.int64).reshape(-1, len(space.knobs)) for part in (leading, rest))
        vectors = interleave(neighbors, others, self.led_share)[: self.n_candidates]
        return Candidates(vectors, np.zeros(len(vectors)))


def _neighbors(space: Space, vector: NDArray[np.int64]) -> Iterator[Vectors]:
    """Yield the valid index vectors, shape (n_knobs,), that differ from the given one in one knob, by one value."""
    steps = np.concatenate([np.eye(len(vector), dtype=np.int64), -np.eye(len(vector), dtype=np.int64)])
    moved = vector + steps
    moved = moved[((moved >= 0) & (moved < space.cardinalities)).all(axis=1)]
    yield from moved[space.valid(moved)]
