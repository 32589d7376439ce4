"""AdaTune's explorer: annealing that sets the random share of a batch by the surrogate's uncertainty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from anole.search.explore.annealing import Annealing, AnnealingExplorer
from anole.search.roles import Candidates, Explorer, History, Surrogate
from anole.search.settings import Range
from anole.space.space import Space


@dataclass(frozen=True)
class ContextualAnnealing(Annealing):
    """Annealing with a share of random configs that follows the surrogate's uncertainty.

    Li et al., "AdaTune: Adaptive Tensor Program Compilation Made Efficient" (NeurIPS 2020), section 4.2.2: the
    share is the mean standard deviation of the predictions for random configs, relative to the best measured
    speed (equation 3). It is 0 if the surrogate has no spread. The walk is the same as in the paper's baseline.

    Attributes:
        n_probes: number of random configs that estimate the uncertainty (the paper's K, appendix A).
    """

    name: ClassVar[str] = "contextual"

    n_probes: Annotated[int, Range(1)] = 20

    def start(self, space: Space) -> Explorer:
        """Return the explorer, ready to tune one task."""
        return _ContextualExplorer(self, space)


class _ContextualExplorer(AnnealingExplorer):
    settings: ContextualAnnealing

    def propose(self, surrogate: Surrogate, history: History, rng: np.random.Generator) -> Candidates:
        candidates = super().propose(surrogate, history, rng)
        if not surrogate.fitted:
            return candidates
        probes = history.space.sample(self.settings.n_probes, rng, exclude=history.visited)
        epsilon = float(np.clip(surrogate.spread(probes).mean(), 0.0, 1.0)) if len(probes) else 0.0
        return replace(candidates, epsilon=epsilon, log={**candidates.log, "epsilon": epsilon})
