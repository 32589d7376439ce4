"""The frontier of one search: scores every config once and keeps the best unmeasured ones."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Candidates, History, Surrogate
from anole.space.space import Vectors

_NEAR = 0.01
"""The share of the best score that a converged search may still gain."""


class Frontier:
    """Scores configs for an explorer, each once, and remembers the `n_best` most promising that were never measured.

    Of configs that run the same program, only the first one that is promising is remembered.

    A change among these counts if it is among the first `n_watched`, or anywhere if that is None.
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
        """Return the scores of valid index vectors, shape (n,), and whether they changed the watched ones."""
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
        vectors = self._space.plainest(self._space.vectors([index for _, index in ranking]))
        return Candidates(vectors, np.array([score for score, _ in ranking]), {"queries": len(self), **log})


def converged_at(bests: Sequence[float]) -> int:
    """Return the step at which a search came within 1 % of the best score that it finds.

    This is how many steps it needs to converge (RELEASE, figure 5; Chameleon, figure 7a). The highest score of each
    step is given, that of the start first.
    """
    so_far = np.maximum.accumulate(np.asarray(bests, dtype=np.float64))
    return int(np.argmax(so_far >= so_far[-1] - _NEAR * abs(so_far[-1])))


def _enter(heap: list[tuple[float, int]], entry: tuple[float, int], size: int) -> bool:
    """Add a scored config to a heap of at most `size` of them, if it is among the best; returns whether it is."""
    if len(heap) < size:
        heapq.heappush(heap, entry)
    elif entry[0] > heap[0][0]:
        heapq.heapreplace(heap, entry)
    else:
        return False
    return True
