"""Epsilon-greedy sampling: promising and diverse candidates, and a few random configs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Candidates, History
from anole.search.settings import Range, Stateless
from anole.space.space import Vectors


@dataclass(frozen=True)
class EpsilonGreedy(Stateless):
    """The best candidates, diverse ones first, and a few random configs.

    Chen et al., "Learning to Optimize Tensor Programs" (NeurIPS 2018), section 3.3: of the best
    `diversity_ratio` * b candidates those b are chosen greedily that maximise the sum of their scores plus
    `diversity_weight` times the number of distinct knob values among them, a submodular objective; where the space
    knows what programs its configs have, it counts distinct figures of these instead, for knobs without an effect are
    no diversity. AutoTVM's code ignores the scores here, and its diversity is off by default.

    Attributes:
        epsilon: share of a batch that is drawn uniformly; the default is AutoTVM's.
        diversity_ratio: candidates considered per chosen one (the paper's lambda); 1 or null takes the best
            without regard to diversity. The default is what RELEASE's code sets.
        diversity_weight: value of one more distinct knob value (the paper's alpha), where the score of the
            best config is 1. The default is our own and is not tuned.
        least_random: how many configs of a batch are drawn uniformly at least; `epsilon` of a small one is none.
    """

    name: ClassVar[str] = "greedy"
    added: ClassVar[frozenset[str]] = frozenset({"least_random"})

    epsilon: Annotated[float, Range(0, 1)] = 0.05
    diversity_ratio: Annotated[float, Range(1)] | None = 2.0
    diversity_weight: Annotated[float, Range(0)] = 0.02
    least_random: Annotated[int, Range(0, 256)] = 0

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        """Return greedily chosen candidates, and then random configs."""
        n_greedy = n - min(n, max(int(self.epsilon * n), self.least_random))
        ratio = self.diversity_ratio or 1.0
        vectors, scores = candidates.vectors[: int(ratio * n)], candidates.scores[: int(ratio * n)]
        # Before the first fit all scores are zero and the candidates uniform; diversity would skew them.
        if ratio > 1 and scores.any():
            outcomes = history.space.outcomes(vectors)
            vectors = vectors[pick_diverse(outcomes, scores, n_greedy, self.diversity_weight)]
        greedy = vectors[:n_greedy]
        seen = np.concatenate([history.visited, history.space.identities(greedy)])
        return np.concatenate([greedy, history.space.sample(n - len(greedy), rng, exclude=seen)])


def pick_diverse(outcomes: NDArray[np.int64], scores: NDArray[np.float64], n: int, weight: float) -> NDArray[np.int64]:
    """Return at most n rows that score high and together cover many values, in the order of choice.

    Greedy maximisation of the sum of scores + weight * number of distinct (figure, value) pairs. Outcomes have shape
    (m, n_figures), see `Space.outcomes`, and scores shape (m,).
    """
    widths = outcomes.max(axis=0, initial=0) + 1
    values = outcomes + np.cumsum(widths) - widths
    covered = np.zeros(widths.sum(), dtype=bool)
    worth = scores.astype(np.float64)
    picked: list[int] = []
    while len(picked) < min(n, len(outcomes)):
        best = int(np.argmax(worth + weight * (~covered[values]).sum(axis=1)))
        picked.append(best)
        covered[values[best]] = True
        worth[best] = -np.inf
    return np.array(picked, dtype=np.int64)
