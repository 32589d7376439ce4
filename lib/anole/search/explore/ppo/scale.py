"""The scale of returns: their mean and deviation so far, in whose units a critic learns."""

from __future__ import annotations

from torch import Tensor

_LEAST_VARIANCE = 1e-6
"""Keeps the units finite. The public code has 1e-2, but its returns are not scaled by 1 - discount."""


class Scale:
    """MAPPO's value normalisation: a critic predicts returns with mean 0 and deviation 1.

    Yu et al., "The Surprising Effectiveness of PPO in Cooperative, Multi-Agent Games" (2022), section 5.1. All updates
    so far weigh the same, as in the authors' ``ValueNorm``, whose running means forget by 1e-5 an update.

    Args:
        fixed: whether returns keep their own units, as in the critic of PPO.
    """

    def __init__(self, *, fixed: bool) -> None:
        self.fixed = fixed
        self._n_updates, self._mean, self._mean_square = 0, 0.0, 0.0

    def update(self, returns: Tensor) -> None:
        """Adds the returns of one update, shape (n,)."""
        if self.fixed:
            return
        self._n_updates += 1
        self._mean += (float(returns.mean()) - self._mean) / self._n_updates
        self._mean_square += (float(returns.square().mean()) - self._mean_square) / self._n_updates

    def normalized(self, returns: Tensor) -> Tensor:
        """Returns what the critic shall predict for returns."""
        return (returns - self._mean) / self._deviation

    def restored(self, predicted: Tensor) -> Tensor:
        """Returns the returns that the critic predicts."""
        return predicted * self._deviation + self._mean

    @property
    def _deviation(self) -> float:
        if not self._n_updates:
            return 1.0
        return float(max(self._mean_square - self._mean**2, _LEAST_VARIANCE) ** 0.5)
