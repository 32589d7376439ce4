"""AdaTune's sampler: epsilon-greedy sampling in which the explorer sets the random share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from anole.search.roles import Candidates, History
from anole.search.sample.epsilon_greedy import EpsilonGreedy
from anole.space.space import Vectors


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
