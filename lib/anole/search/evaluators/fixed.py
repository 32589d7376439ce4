"""AutoTVM's evaluator: runs every kernel equally often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from anole.search.roles import Timer, Timing
from anole.search.settings import Range


@dataclass(frozen=True)
class Fixed:
    """Times the same number of runs for every kernel, after one untimed run.

    The defaults are AutoTVM's (``LocalRunner(number=4, repeat=3)``), and so is the mean: with
    more than two repeats, the fastest and the slowest are left out. The standard deviation and cv are over all of them.

    Attributes:
        number: runs of one repeat, back to back.
        repeats: number of timed repeats.
    """

    name: ClassVar[str] = "fixed"

    number: Annotated[int, Range(1, 10_000)] = 4
    repeats: Annotated[int, Range(1, 10_000)] = 3

    def evaluate(self, timer: Timer, best_s: float | None = None) -> Timing:
        """Times one kernel."""
        timer(1)
        costs_s = np.sort([timer(self.number) for _ in range(self.repeats)])
        kept_s = costs_s[1:-1] if len(costs_s) > 2 else costs_s
        std_s = float(costs_s.std())
        return Timing(float(kept_s.mean()), std_s, std_s / float(costs_s.mean()), len(costs_s))
