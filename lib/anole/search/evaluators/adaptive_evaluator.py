"""AdaTune's adaptive evaluator, which repeats a kernel until its speed is steady."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.search.roles import Timer, Timing
from anole.search.settings import Range

_MIN_LATENCY_S = 1e-9


@dataclass(frozen=True)
class AdaptiveEvaluator:
    """An evaluator that, after one untimed execution, times micro-batches until the mean speed so far is steady.

    Li et al., "AdaTune: Adaptive Tensor Program Compilation Made Efficient" (NeurIPS 2020), section 4.1. The
    latency is the mean over all executions; the standard deviation, cv and repeats refer to the micro-batches.
    `threshold` applies to `stability`.

    The defaults are the paper's (n = 500 executions at most, B = 50), except for two values that it does not state:
    `min_micro_batches` is 3, as in the paper's code, since a variation requires two values; and `max_s` ends the
    timing of a slow kernel before it would be killed.

    Attributes:
        micro_batch: executions in one micro-batch, back to back (the paper's B).
        micro_batch_s: duration of one micro-batch, in seconds; the mean latency so far gives its number of
            executions, at least one. None uses `micro_batch`.
        min_micro_batches: number of micro-batches before a steady speed may end the timing.
        max_micro_batches: max number of micro-batches (the paper's n, over B).
        threshold: coefficient of variation of the speed since the start, below which it is steady.
        max_s: max seconds of timed executions; the last one may exceed it.
        slow_factor: a kernel this many times slower than the fastest rival is abandoned after its first
            micro-batch; None abandons no kernel.
    """

    name: ClassVar[str] = "adaptive"

    micro_batch: Annotated[int, Range(1, 10_000)] = 50
    micro_batch_s: Annotated[float, Range(0)] | None = None
    min_micro_batches: Annotated[int, Range(1)] = 3
    max_micro_batches: Annotated[int, Range(1)] = 10
    threshold: Annotated[float, Range(0)] = 0.1
    max_s: Annotated[float, Range(0)] = 5.0
    slow_factor: Annotated[float, Range(1)] | None = None

    def evaluate(self, timer: Timer, best_s: float | None = None) -> Timing:
        """Return the timing of one kernel."""
        latency_s = timer(1)
        numbers: list[int] = []
        costs_s: list[float] = []
        spent_s = 0.0
        while not costs_s or not self._is_done(numbers, costs_s, spent_s, best_s):
            numbers.append(self._n_executions(latency_s, self.max_s - spent_s))
            costs_s.append(timer(numbers[-1]))
            spent_s += numbers[-1] * costs_s[-1]
            latency_s = spent_s / sum(numbers)
        std_s = float(np.std(costs_s))
        return Timing(latency_s, std_s, std_s / float(np.mean(costs_s)), len(costs_s))

    def _n_executions(self, latency_s: float, left_s: float) -> int:
        """Return the number of executions in the next micro-batch."""
        max_executions = int(left_s / max(latency_s, _MIN_LATENCY_S))
        n_executions = self.micro_batch
        if self.micro_batch_s is not None:
            n_executions = int(self.micro_batch_s / max(latency_s, _MIN_LATENCY_S))
        return max(1, min(n_executions, max_executions))

    def _is_done(self, numbers: Sequence[int], costs_s: Sequence[float], spent_s: float, best_s: float | None) -> bool:
        latency_s = spent_s / sum(numbers)
        if spent_s + latency_s > self.max_s or len(costs_s) >= self.max_micro_batches:
            return True
        if self.slow_factor is not None and best_s is not None and latency_s > self.slow_factor * best_s:
            return True
        return len(costs_s) >= self.min_micro_batches and stability(numbers, costs_s) < self.threshold


def stability(numbers: Sequence[int], costs_s: Sequence[float]) -> float:
    """Return the coefficient of variation of the mean speed since the start, computed after each micro-batch.

    AdaTune's CV(Perf_1 .. Perf_n) with Perf_i = executions so far * FLOP / Time(i), where the FLOP cancels out.
    `numbers` are the executions in each of the n micro-batches, `costs_s` their mean seconds.
    """
    speeds: NDArray[np.float64] = np.cumsum(numbers) / np.cumsum(np.multiply(numbers, costs_s))
    return float(speeds.std() / speeds.mean())
