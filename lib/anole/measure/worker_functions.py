"""The functions that run in worker processes: build a candidate, or check and time one or several."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from anole.host.cores import caller_on_separate_core
from anole.record import Config
from anole.search.roles import Evaluator, Timing
from anole.search.ties import min_ratios
from anole.targets.base import Device, Runner, Timeable
from anole.task import Workload

_MIN_TURNS, _MAX_TURNS = 5, 100
"""Number of turns of a comparison, which ends within these bounds when its time is up."""

_CACHE_INSENSITIVE_S = 5e-3
"""Runs of at least this duration do not need warm caches: refilling the caches takes only 0.1 ms."""


@dataclass(frozen=True)
class Timed:
    """A candidate's error and time.

    Attributes:
        relative_error: L2 distance of its result from the reference; NaN if part of the output was not written.
        timing: None if the error is too large, because incorrect candidates are not timed.
        min_ratio: see `anole.search.ties.Compared`; also None for a candidate that ran alone.
    """

    relative_error: float
    timing: Timing | None
    min_ratio: float | None = None


def start_building(target: Device, workload: Workload) -> Callable[[Config, str], float]:
    """Return a function that builds a candidate of a workload in this process and returns the seconds it took."""

    def build(config: Config, artifact: str) -> float:
        began_s = time.perf_counter()
        target.build(workload, config, Path(artifact))
        return time.perf_counter() - began_s

    return build


def start_running(target: Device, workload: Workload, evaluator: Evaluator) -> Callable[..., list[Timed]]:
    """Return a function that runs candidates of a workload in this process, one by one or interleaved."""
    # An idle BLAS thread spins on its core for longer than most kernels run.
    threadpool_limits(1, user_api="blas")
    return _run_function(target.runner(workload), evaluator, target.max_relative_error)


def start_running_remotely(
    target: Device, workload: Workload, evaluator: Evaluator, session_s: float
) -> Callable[..., list[Timed]]:
    """Return the function of `start_running` for a remote device; its first call takes the server to connect to.

    The server ends the session after `session_s` seconds.
    """
    threadpool_limits(1, user_api="blas")
    run: Callable[..., list[Timed]] | None = None

    def handle(first_argument: Any, *rest: Any) -> list[Timed]:
        from anole.targets.rpc.runner import open_session

        nonlocal run
        if run is not None:
            return run(first_argument, *rest)
        runner = target.remote_runner(workload, open_session(first_argument, session_s))
        run = _run_function(runner, evaluator, target.max_relative_error)
        return []

    return handle


def _run_function(runner: Runner, evaluator: Evaluator, tolerance: float) -> Callable[..., list[Timed]]:
    def run(configs: Sequence[tuple[str, Config]], best_s: float | None, seconds: float | None = None) -> list[Timed]:
        if seconds is None:
            return [_measure(runner, artifact, config, evaluator, best_s, tolerance) for artifact, config in configs]
        return _compare(runner, configs, seconds, tolerance)

    return run


def _measure(
    runner: Runner, artifact: str, config: Config, evaluator: Evaluator, best_s: float | None, tolerance: float
) -> Timed:
    kernel = runner.load(Path(artifact), config)
    error = kernel.relative_error()
    if not error <= tolerance:
        return Timed(error, None)
    with caller_on_separate_core():
        return Timed(error, evaluator.evaluate(kernel, best_s))


def _compare(runner: Runner, configs: Sequence[tuple[str, Config]], seconds: float, tolerance: float) -> list[Timed]:
    """Time candidates interleaved, which exposes all of them to the same state of the machine."""
    kernels = [runner.load(Path(artifact), config) for artifact, config in configs]
    errors = [kernel.relative_error() for kernel in kernels]
    correct = [kernel for kernel, error in zip(kernels, errors, strict=True) if error <= tolerance]
    turns: list[list[float]] = []
    ends_s = time.perf_counter() + seconds
    with caller_on_separate_core():
        while correct and len(turns) < (_MAX_TURNS if time.perf_counter() < ends_s else _MIN_TURNS):
            turns.append([_time_turn(kernel) for kernel in correct])
    by_kernel = list(zip(*turns, strict=True))
    ratios = min_ratios(by_kernel)
    results = iter(zip(map(_median_timing, by_kernel), ratios, strict=True))
    return [Timed(error, *next(results)) if error <= tolerance else Timed(error, None) for error in errors]


def _time_turn(kernel: Timeable) -> float:
    # The first run refills the caches, from which other candidates have evicted this one's data.
    first_s = kernel(1)
    return first_s if first_s >= _CACHE_INSENSITIVE_S else kernel(2)


def _median_timing(latencies_s: Sequence[float]) -> Timing:
    std_s = statistics.pstdev(latencies_s)
    return Timing(statistics.median(latencies_s), std_s, std_s / statistics.fmean(latencies_s), len(latencies_s))
