"""Allocation of a budget of trials to tasks: the next trials go to the task with the greatest expected saving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol


class Claimant(Protocol):
    """A task that competes for trials."""

    @property
    def n_trials(self) -> int:
        """Trials so far."""

    @property
    def elapsed_s(self) -> float:
        """Seconds that searching and measuring took so far."""

    @property
    def done(self) -> bool:
        """Whether no further trials are useful."""

    @property
    def expected_saving_s(self) -> float:
        """Expected saving of the next trials, in seconds per execution of the model."""

    def advance(self, n_trials: int) -> None:
        """Tune until the task has `n_trials` trials in total or is done."""


def spend(claimants: Sequence[Claimant], n_trials: int, step: int, seconds: float = math.inf) -> None:
    """Spend a budget: one step for every task, then each step on the task with the greatest expected saving.

    This is the rule of Zheng et al., "Ansor" (OSDI 2020), section 6, with the saving per step as the gradient.

    Recorded trials that an interrupted task replays count towards the shared budget. If the budget is too small for
    `step` trials per task, steps are shorter. The last step may exceed `seconds`.
    """
    step = max(1, min(step, n_trials // max(1, len(claimants))))
    while (n_left := n_trials - sum(claimant.n_trials for claimant in claimants)) > 0:
        if sum(claimant.elapsed_s for claimant in claimants) >= seconds:
            return
        unfinished = [claimant for claimant in claimants if not claimant.done]
        if not unfinished:
            return
        untried = [claimant for claimant in unfinished if not claimant.n_trials]
        claimant = max(untried or unfinished, key=lambda claimant: claimant.expected_saving_s)
        claimant.advance(claimant.n_trials + min(step, n_left))
