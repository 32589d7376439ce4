"""AdaTune's sampler: epsilon-greedy sampling in which the explorer sets the random share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from anole.search.roles import Candidates, History, Sampler
from anole.search.sample.epsilon_greedy import EpsilonGreedy
from anole.space.space import Space, Vectors


@dataclass(frozen=True)
class ContextualGreedy(EpsilonGreedy):
    """Like `EpsilonGreedy`, but with the share of random configs that the explorer sets.

    Li et al., "AdaTune: Adaptive Tensor Program Compilation Made Efficient" (NeurIPS 2020), algorithm 1, lines 8
    and 9. `epsilon` applies only if the explorer sets none.
    """

    name: ClassVar[str] = "contextual"

    def start(self, space: Space) -> Sampler:
        """Returns the sampler, ready to tune one task."""
        return _ContextualSampler(self, space)


class _ContextualSampler:
    def __init__(self, settings: ContextualGreedy, space: Space) -> None:
        self.settings, self.space = settings, space

    def choose(self, candidates: Candidates, history: History, n: int, rng: np.random.Generator) -> Vectors:
        epsilon = self.settings.epsilon if candidates.epsilon is None else candidates.epsilon
        greedy = EpsilonGreedy(epsilon, self.settings.diversity_ratio, self.settings.diversity_weight)
        return greedy.start(self.space).choose(candidates, history, n, rng)
