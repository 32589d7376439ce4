"""AutoTVM's evaluator, with a fixed number of executions for every kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from anole.search.roles import Timer, Timing
from anole.search.settings import Range


@dataclass(frozen=True)
class Fixed:
    """An evaluator that times the same number of executions of every kernel, after one untimed one.

    The defaults are AutoTVM's (``LocalRunner(number=4, repeat=3)``), and so is the mean: with
    more than two repeats, it omits the fastest and the slowest. The standard deviation and cv are over all repeats.

    Attributes:
        number: executions in one repeat, back to back.
        max_s: max seconds of timed executions: each repeat of a slow kernel has fewer, at least one, since the
            kernel would otherwise be killed. None sets no limit.
    """

    name: ClassVar[str] = "fixed"

    number: Annotated[int, Range(1, 10_000)] = 4
    repeats: Annotated[int, Range(1, 10_000)] = 3
    max_s: Annotated[float, Range(0)] | None = None

    def evaluate(self, timer: Timer, best_s: float | None = None) -> Timing:
        """Return the timing of one kernel."""
        first_s = timer(1)
        number = self.number
        if self.max_s is not None:
            number = max(1, min(number, int(self.max_s / self.repeats / max(first_s, 1e-9))))
        costs_s = np.sort([timer(number) for _ in range(self.repeats)])
        trimmed_s = costs_s[1:-1] if len(costs_s) > 2 else costs_s
        std_s = float(costs_s.std())
        return Timing(float(trimmed_s.mean()), std_s, std_s / float(costs_s.mean()), len(costs_s))
