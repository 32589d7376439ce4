"""The functions that run in worker processes: build a candidate, or check and time one or several."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from anole.host.cores import keep_caller_on_separate_core
from anole.record import Config
from anole.search.roles import Evaluator, Timing
from anole.search.ties import min_ratios
from anole.targets.base import Device, Runner, Timeable
from anole.task import Workload

_MIN_ROUNDS, _MAX_ROUNDS = 5, 100
"""Min and max rounds of a comparison; between these bounds, it ends when its time is up."""

_CACHE_INSENSITIVE_S = 5e-3
"""A run at least this long may start with cold caches: refilling them takes only 0.1 ms."""

_Candidate = tuple[str, Config]
"""The path of an artifact, and its config."""


@dataclass(frozen=True)
class Timed:
    """A candidate's error and time.

    Attributes:
        relative_error: L2 distance of its result from the reference; NaN if it contains NaN, as in unwritten floats.
        timing: None if the error is too large, because incorrect candidates are not timed.
        min_ratio: lower confidence bound of the latency relative to the fastest competing candidate's; None if the
            candidate failed or ran alone.
    """

    relative_error: float
    timing: Timing | None
    min_ratio: float | None = None


def make_build_function(target: Device, workload: Workload) -> Callable[[Config, str], float]:
    """Return a function that builds a candidate of a workload in this process and returns the seconds it took."""

    def build(config: Config, artifact_path: str) -> float:
        began_s = time.perf_counter()
        target.build(workload, config, Path(artifact_path))
        return time.perf_counter() - began_s

    return build


def make_run_function(target: Device, workload: Workload, evaluator: Evaluator) -> Callable[..., list[Timed]]:
    """Return a function that runs candidates of a workload in this process, one by one or interleaved."""
    # An idle BLAS thread spins on its core for longer than most kernels run.
    threadpool_limits(1, user_api="blas")
    return _make_run(target.runner(workload), evaluator, target.max_relative_error)


def make_remote_run_function(
    target: Device, workload: Workload, evaluator: Evaluator, session_s: float
) -> Callable[..., list[Timed]]:
    """Return a function that runs candidates of a workload on a remote device.

    Its first call takes only the address of a server, connects to it, and returns []; later calls run candidates. The
    server ends the session after `session_s` seconds.
    """
    threadpool_limits(1, user_api="blas")
    run: Callable[..., list[Timed]] | None = None

    def connect_or_run(server_or_candidates: Any, *rest: Any) -> list[Timed]:
        from anole.targets.rpc.runner import open_session

        nonlocal run
        if run is not None:
            return run(server_or_candidates, *rest)
        runner = target.remote_runner(workload, open_session(server_or_candidates, session_s))
        run = _make_run(runner, evaluator, target.max_relative_error)
        return []

    return connect_or_run


def _make_run(runner: Runner, evaluator: Evaluator, max_error: float) -> Callable[..., list[Timed]]:
    def run(candidates: Sequence[_Candidate], best_s: float | None, seconds: float | None = None) -> list[Timed]:
        """Time candidates interleaved, for about `seconds`; if it is None, measure them one by one."""
        if seconds is None:
            return [_measure(runner, candidate, evaluator, best_s, max_error) for candidate in candidates]
        return _compare(runner, candidates, seconds, max_error)

    return run


def _measure(
    runner: Runner, candidate: _Candidate, evaluator: Evaluator, best_s: float | None, max_error: float
) -> Timed:
    artifact_path, config = candidate
    kernel = runner.load(Path(artifact_path), config)
    error = kernel.relative_error()
    if not error <= max_error:
        return Timed(error, None)
    with keep_caller_on_separate_core():
        return Timed(error, evaluator.evaluate(kernel, best_s))


def _compare(runner: Runner, candidates: Sequence[_Candidate], seconds: float, max_error: float) -> list[Timed]:
    """Time candidates interleaved, which exposes all of them to the same state of the machine."""
    kernels = [runner.load(Path(artifact_path), config) for artifact_path, config in candidates]
    errors = [kernel.relative_error() for kernel in kernels]
    correct = [kernel for kernel, error in zip(kernels, errors, strict=True) if error <= max_error]
    rounds: list[list[float]] = []
    ends_s = time.perf_counter() + seconds
    with keep_caller_on_separate_core():
        while correct and len(rounds) < (_MAX_ROUNDS if time.perf_counter() < ends_s else _MIN_ROUNDS):
            rounds.append([_time_turn(kernel) for kernel in correct])
    by_kernel = list(zip(*rounds, strict=True))
    ratios = min_ratios(by_kernel)
    results = iter(zip(map(_median_timing, by_kernel), ratios, strict=True))
    return [Timed(error, *next(results)) if error <= max_error else Timed(error, None) for error in errors]


def _time_turn(kernel: Timeable) -> float:
    # The first run refills the caches, from which other candidates have evicted this one's data.
    first_s = kernel(1)
    return first_s if first_s >= _CACHE_INSENSITIVE_S else kernel(2)


def _median_timing(latencies_s: Sequence[float]) -> Timing:
    std_s = statistics.pstdev(latencies_s)
    return Timing(statistics.median(latencies_s), std_s, std_s / statistics.fmean(latencies_s), len(latencies_s))
