"""Epsilon-greedy sampling, also AdaTune's: promising and diverse candidates, and a share of random configs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Candidates, History
from anole.search.settings import Range, Stateless
from anole.space.space import Vectors


@dataclass(frozen=True)
class EpsilonGreedy(Stateless):
    """A sampler that takes the best candidates, diverse ones first, and a few random configs.

    Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 3.3: from the best
    `diversity_ratio` * b candidates, b are chosen greedily to maximize the sum of their scores plus `diversity_weight`
    times the number of distinct knob values among them, a submodular objective. If the space describes the programs of
    its configs, distinct program properties count instead, since knobs without effect add no diversity. AutoTVM's
    code ignores the scores here, and its diversity is off by default.

    Attributes:
        epsilon: share of a batch that is sampled uniformly; the default is AutoTVM's.
        diversity_ratio: number of candidates considered per chosen candidate (the paper's lambda); 1 or None takes the
            best without regard to diversity. The default is RELEASE's.
        diversity_weight: value of one more distinct knob value (the paper's alpha); the best config's score is 1. The
            default is our own and is not tuned.
        least_random: min number of uniformly random configs in a batch, since `epsilon` of a small batch rounds to 0.
    """

    name: ClassVar[str] = "greedy"
    later_settings: ClassVar[frozenset[str]] = frozenset({"least_random"})

    epsilon: Annotated[float, Range(0, 1)] = 0.05
    diversity_ratio: Annotated[float, Range(1)] | None = 2.0
    diversity_weight: Annotated[float, Range(0)] = 0.02
    least_random: Annotated[int, Range(0, 256)] = 0

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Return greedily chosen candidates, then random configs."""
        n_greedy = n - min(n, max(int(self.epsilon * n), self.least_random))
        ratio = self.diversity_ratio or 1.0
        vectors, scores = candidates.vectors[: int(ratio * n)], candidates.scores[: int(ratio * n)]
        # Before the first fit all scores are zero and the candidates uniform; diversity would skew them.
        if ratio > 1 and scores.any():
            outcomes = history.space.outcomes(vectors)
            vectors = vectors[pick_diverse(outcomes, scores, n_greedy, self.diversity_weight)]
        greedy = vectors[:n_greedy]
        visited = np.concatenate([history.visited, history.space.identities(greedy)])
        return np.concatenate([greedy, history.space.sample(n - len(greedy), rng, exclude=visited)])


@dataclass(frozen=True)
class ContextualGreedy(EpsilonGreedy):
    """Epsilon-greedy sampling with the random share that the explorer sets.

    Li et al., "AdaTune: Adaptive Tensor Program Compilation Made Efficient" (NeurIPS 2020), algorithm 1, lines 8
    and 9. `epsilon` is used only if the explorer sets no share.
    """

    name: ClassVar[str] = "contextual"

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Return the choice of `EpsilonGreedy` with the explorer's share."""
        epsilon = self.epsilon if candidates.epsilon is None else candidates.epsilon
        return super(ContextualGreedy, replace(self, epsilon=epsilon)).choose(candidates, history, n, rng)


def pick_diverse(outcomes: NDArray[np.int64], scores: NDArray[np.float64], n: int, weight: float) -> NDArray[np.int64]:
    """Return at most n rows with high scores that together cover many values, in the order of choice.

    Greedy maximization of the sum of scores + weight * number of distinct (column, value) pairs. Outcomes have shape
    (m, n_columns), see `Space.outcomes`, and scores shape (m,).
    """
    widths = outcomes.max(axis=0, initial=0) + 1
    values = outcomes + np.cumsum(widths) - widths
    covered = np.zeros(widths.sum(), dtype=bool)
    remaining = scores.astype(np.float64)
    rows: list[int] = []
    while len(rows) < min(n, len(outcomes)):
        best = int(np.argmax(remaining + weight * (~covered[values]).sum(axis=1)))
        rows.append(best)
        covered[values[best]] = True
        remaining[best] = -np.inf
    return np.array(rows, dtype=np.int64)
