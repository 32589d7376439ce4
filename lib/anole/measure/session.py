"""What happens inside of the worker processes: building a candidate, and checking and timing it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anole.record import Config
from anole.roles import Evaluator, Timing
from anole.targets import get_target
from anole.targets.base import Runner, Timeable
from anole.task import Task

_FEWEST_TURNS = 5


@dataclass(frozen=True)
class Timed:
    """A candidate's answer and time.

    Attributes:
        relative_error: its answer's L2 distance from the reference; NaN when it left some of it unwritten.
        timing: None when the answer is too far off to be timed.
    """

    relative_error: float
    timing: Timing | None


def start_building(task: Task) -> Callable[[Config, str], None]:
    """Returns the function that builds candidates of a task in this process."""
    target = get_target(task.target)

    def build(config: Config, artifact: str) -> None:
        target.build(task.workload, config, Path(artifact))

    return build


def start_running(task: Task, evaluator: Evaluator, tolerance: float) -> Callable[..., Any]:
    """Returns the function that runs candidates of a task in this process, once or against each other."""
    runner = get_target(task.target).runner(task.workload)

    def run(configs: Sequence[tuple[str, Config]], seconds: float | None = None) -> list[Timed]:
        if seconds is None:
            return [_measure(runner, artifact, config, evaluator, tolerance) for artifact, config in configs]
        return _compare(runner, configs, seconds, tolerance)

    return run


def _measure(runner: Runner, artifact: str, config: Config, evaluator: Evaluator, tolerance: float) -> Timed:
    kernel = runner.load(Path(artifact), config)
    error = kernel.relative_error()
    return Timed(error, evaluator.evaluate(kernel) if error <= tolerance else None)


def _compare(
    runner: Runner, configs: Sequence[tuple[str, Config]], seconds: float, tolerance: float
) -> list[Timed]:
    """Times rivals in turns until the time is up, so that all of them meet the same state of the machine."""
    kernels = [runner.load(Path(artifact), config) for artifact, config in configs]
    errors = [kernel.relative_error() for kernel in kernels]
    right = [kernel for kernel, error in zip(kernels, errors, strict=True) if error <= tolerance]
    turns: list[list[float]] = []
    ends_s = time.perf_counter() + seconds
    while right and (len(turns) < _FEWEST_TURNS or time.perf_counter() < ends_s):
        turns.append([_turn(kernel) for kernel in right])
    timings = iter(_median_timing(latencies_s) for latencies_s in zip(*turns, strict=True))
    return [Timed(error, next(timings) if error <= tolerance else None) for error in errors]


def _turn(kernel: Timeable) -> float:
    # The first run fills the caches again that the rivals have used.
    kernel(1)
    return kernel(2)


def _median_timing(latencies_s: Sequence[float]) -> Timing:
    std_s = statistics.pstdev(latencies_s)
    return Timing(
        statistics.median(latencies_s), std_s, std_s / statistics.fmean(latencies_s), len(latencies_s)
    )
