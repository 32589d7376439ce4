"""Boosted trees that correct the analytical score (merit) of a config: the default surrogate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import History, Surrogate
from anole.search.surrogate.boosted_trees import BoostedTrees, BoostedTreesSurrogate
from anole.search.surrogate.gaussian_process import GaussianProcess
from anole.search.surrogate.guarded import Model
from anole.space.space import Space, Vectors

_N_SAMPLED = 1024
"""Number of random configs whose best merit approximates the best of the space before the first trial."""


@dataclass(frozen=True)
class MeritTrees(BoostedTrees):
    """Boosted trees that start from the space's merit, if it is a speed; a Gaussian process in spaces without merit.

    Before the first trial, the merit scores configs, which guides the explorer. Later, it is the margin from which the
    trees are boosted. A merit that is no speed is not used. Our own method, not from a paper.

    Attributes:
        without_merit: the surrogate of a space without merit.
    """

    name: ClassVar[str] = "merit_trees"

    without_merit: Literal["gaussian_process", "boosted_trees"] = "gaussian_process"

    def start(self, space: Space) -> Surrogate:
        """Return the surrogate, ready to tune one task."""
        if space.merit is None and self.without_merit == GaussianProcess.name:
            return GaussianProcess().start(space)
        return _MeritTreesSurrogate(self, space) if space.merit_is_speed else super().start(space)


class _MeritTreesSurrogate(BoostedTreesSurrogate):
    """Trees that are boosted from the speed predicted by the merit, relative to the best known speed."""

    fitted = True

    def __init__(self, settings: MeritTrees, space: Space) -> None:
        super().__init__(settings, space)
        sampled = space.sample(_N_SAMPLED, np.random.default_rng(0))
        self._unit = float(self._expected_speeds(sampled).max(initial=0.0)) or 1.0

    def _learn(self, history: History) -> Model | None:
        """Scale the merit to the measured speeds, and boost new trees from it.

        The ratio of merit to speed differs between configs; the median is used. Examples from other tasks are omitted,
        since they have no merit.
        """
        expected = self._expected_speeds(history.vectors)
        comparable = (history.gflops > 0) & (expected > 0)
        if comparable.any():
            self._unit = float(history.best_gflops * np.median(expected[comparable] / history.gflops[comparable]))
        return self._boost(history.measured(), self._score_unfitted(history.vectors))

    def _score_unfitted(self, vectors: Vectors) -> NDArray[np.float64]:
        return np.asarray(self._expected_speeds(vectors) / self._unit)

    def _expected_speeds(self, vectors: Vectors) -> NDArray[np.float64]:
        assert self.space.merit is not None
        return np.asarray(self.space.merit(self.space.columns(vectors)), dtype=np.float64)
