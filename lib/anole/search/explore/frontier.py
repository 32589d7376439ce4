"""The frontier of a search: the best unmeasured configs so far; every config is scored once."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Candidates, History, Surrogate
from anole.space.space import Vectors

_CONVERGENCE_TOLERANCE = 0.01
"""The share of the best score that a converged search may still gain."""


class Frontier:
    """The `n_best` most promising unmeasured configs of an explorer's search; scores each visited config once.

    Of several configs with the same program, only the first promising one is kept. `n_watched` is the number of best
    configs to watch for a change; None watches all.
    """

    def __init__(self, surrogate: Surrogate, history: History, n_best: int, n_watched: int | None = None) -> None:
        self._surrogate, self._space = surrogate, history.space
        self._n_best, self._n_watched = n_best, min(n_best, n_watched or n_best)
        self._taken = set(history.visited.tolist())
        self._scores: dict[int, float] = {}
        self._best: list[tuple[float, int]] = []
        self._watched: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """Return the number of configs that the surrogate has scored."""
        return len(self._scores)

    def score(self, vectors: Vectors) -> tuple[NDArray[np.float64], bool]:
        """Return the scores of valid index vectors, shape (n,), and whether these changed the watched configs."""
        indices = self._space.indices(vectors).tolist()
        unseen = {index: row for row, index in enumerate(indices) if index not in self._scores}
        changed = False
        if unseen:
            fresh = vectors[list(unseen.values())]
            scores = self._surrogate.score(fresh).tolist()
            self._scores.update(zip(unseen, scores, strict=True))
            for entry, identity in zip(
                zip(scores, unseen, strict=True), self._space.identities(fresh).tolist(), strict=True
            ):
                if identity not in self._taken and _enter(self._best, entry, self._n_best):
                    self._taken.add(identity)
                    changed |= _enter(self._watched, entry, self._n_watched)
        return np.array([self._scores[index] for index in indices]), changed

    def candidates(self, **log: float) -> Candidates:
        """Return the best configs, the most promising first, with the statistics of the search."""
        ranking = sorted(self._best, reverse=True)
        vectors = self._space.first_equivalents(self._space.vectors([index for _, index in ranking]))
        return Candidates(vectors, np.array([score for score, _ in ranking]), {"queries": len(self), **log})


def converged_at(bests: Sequence[float]) -> int:
    """Return the step at which a search came within 1 % of its final best score.

    This is the number of steps to convergence (RELEASE, figure 5; Chameleon, figure 7a). `bests` has the highest score
    at the start, then of each step.
    """
    so_far = np.maximum.accumulate(np.asarray(bests, dtype=np.float64))
    return int(np.argmax(so_far >= so_far[-1] - _CONVERGENCE_TOLERANCE * abs(so_far[-1])))


def _enter(heap: list[tuple[float, int]], entry: tuple[float, int], size: int) -> bool:
    """Add a scored config to a heap of the `size` best, if it is one of them; return whether it is."""
    if len(heap) < size:
        heapq.heappush(heap, entry)
    elif entry[0] > heap[0][0]:
        heapq.heapreplace(heap, entry)
    else:
        return False
    return True
