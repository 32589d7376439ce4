"""The frontier of one search: scores every config once and keeps the best unmeasured ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Candidates, History, Surrogate
from anole.space.space import Vectors


class Frontier:
    """Scores configs for an explorer and remembers the most promising.

    The surrogate scores each config once, however often a search visits it.

    Args:
        surrogate: whose word it is, the same throughout.
        history: the measured configs, which are no candidates.
        n_best: number of candidates to keep.
    """

    def __init__(self, surrogate: Surrogate, history: History, n_best: int) -> None:
        self._surrogate, self._space, self._n_best = surrogate, history.space, n_best
        self._visited = set(history.visited.tolist())
        self._scores: dict[int, float] = {}
        self._best: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """Returns the number of configs that the surrogate has scored."""
        return len(self._scores)

    def score(self, vectors: Vectors) -> tuple[NDArray[np.float64], bool]:
        """Returns the scores of valid index vectors, shape (n,), and whether they changed the best."""
        indices = self._space.indices(vectors).tolist()
        unseen = {index: row for row, index in enumerate(indices) if index not in self._scores}
        changed = False
        if unseen:
            scores = self._surrogate.score(vectors[list(unseen.values())]).tolist()
            self._scores.update(zip(unseen, scores, strict=True))
            changed = self._keep(zip(scores, unseen, strict=True))
        return np.array([self._scores[index] for index in indices]), changed

    def candidates(self, **log: float) -> Candidates:
        """Returns the best configs, the most promising first, with the statistics of the search."""
        ranking = sorted(self._best, reverse=True)
        vectors = self._space.vectors([index for _, index in ranking])
        return Candidates(vectors, np.array([score for score, _ in ranking]), {"queries": len(self), **log})

    def _keep(self, scored: Iterable[tuple[float, int]]) -> bool:
        changed = False
        for score, index in scored:
            if index in self._visited:
                continue
            if len(self._best) < self._n_best:
                heapq.heappush(self._best, (score, index))
                changed = True
            elif score > self._best[0][0]:
                heapq.heapreplace(self._best, (score, index))
                changed = True
        return changed
