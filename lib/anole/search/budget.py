"""One budget for many tasks: the next trials go where they are expected to save the most time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Claimant(Protocol):
    """A task that trials may be spent on."""

    @property
    def n_trials(self) -> int:
        """Trials so far."""

    @property
    def done(self) -> bool:
        """Whether more trials would be in vain."""

    @property
    def expected_saving_s(self) -> float:
        """Seconds of one run of the model that the next trials are expected to save."""

    def advance(self, n_trials: int) -> None:
        """Goes on until there are so many trials, or it is done."""


def spend(claimants: Sequence[Claimant], n_trials: int, step: int) -> None:
    """Spends a budget: a step for every task, then step by step where the expected saving is greatest.

    It is the rule of Zheng et al., "Ansor" (OSDI 2020), section 6, with the saving per step as the gradient.

    Args:
        claimants: the tasks; those that were interrupted replay what they have, and it counts.
        n_trials: the budget of all together.
        step: trials that are granted at once; fewer where the budget does not reach for one step each.
    """
    step = max(1, min(step, n_trials // max(1, len(claimants))))
    while (left := n_trials - sum(claimant.n_trials for claimant in claimants)) > 0:
        able = [claimant for claimant in claimants if not claimant.done]
        if not able:
            return
        untried = [claimant for claimant in able if not claimant.n_trials]
        claimant = max(untried or able, key=lambda claimant: claimant.expected_saving_s)
        claimant.advance(claimant.n_trials + min(step, left))
