"""A timer of a network's builds and their kernels, in separate processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from anole.documents.build import read_build
from anole.errors import BuildError
from anole.evaluate.comparison import timing_inputs
from anole.evaluate.engines import build_engine
from anole.evaluate.timing.kernel_times import time_kernels
from anole.evaluate.timing.turns import TurnSchedule, ratios, time_interleaved
from anole.host.process import CallError, Worker
from anole.measure.device_access import DeviceAccess
from anole.targets.base import Device

_MIN_RUNS = 5
"""Min number of runs per turn: enough for a large network, whose runs are long compared with disturbances."""

_TIMEOUT_S = 600.0
"""The timeout of a call: enough to load a network that runs for one second, and to run it a few dozen times."""


@dataclass(frozen=True)
class TimedPair:
    """The median latencies of two builds, timed in alternation, and the median ratio of their latencies."""

    latency_s: float
    rival_latency_s: float
    ratio: float


class Stopwatch(AbstractContextManager["Stopwatch"]):
    """A timer of builds for the CPU that holds its lock; a context manager that ends its process on exit.

    It uses a separate process because TVM sets its number of threads when it starts, and because a candidate may
    crash in a network in which it never ran.
    """

    def __init__(self, target: Device, access: DeviceAccess) -> None:
        self._access, self._threads = access, target.threads
        # TVM never frees a loaded network, so each call gets a new process.
        environment = {**target.environment(), **access.environment()}
        self._worker = Worker(_start, preload=target.preload, environment=environment, calls_before_restart=1)

    def __exit__(self, *_: object) -> None:
        self._worker.kill()

    def kernels_s(self, folder: Path, seconds: float) -> Mapping[str, float]:
        """Return the total seconds of each kernel's calls in a build, by the kernel's name, timed for `seconds`.

        Raises:
            BuildError: the build cannot be loaded, crashes or hangs.
        """
        times_s: Mapping[str, float] = self._call(folder, _kernels_s, folder, self._threads, seconds)
        return times_s

    def compare(self, folder: Path, baseline: Path, schedule: TurnSchedule) -> TimedPair:
        """Time two builds of a network in alternation; raises BuildError if one cannot be loaded, crashes or hangs."""
        pair: TimedPair = self._call(folder, _compare, folder, baseline, self._threads, schedule)
        return pair

    def _call(self, folder: Path, *call: Any) -> Any:
        with self._access.timing():
            try:
                return self._worker.call(*call, timeout_s=_TIMEOUT_S)
            except CallError as error:
                raise BuildError(f"{folder}: cannot be timed: {error}") from error


def _start() -> Callable[..., Any]:
    """Return the function that handles calls in the process: a call passes the function to run."""
    # BLAS threads that wait for more work would occupy a core for longer than most kernels run.
    threadpool_limits(1, user_api="blas")
    return lambda function, *arguments: function(*arguments)


def _kernels_s(folder: Path, threads: int, seconds: float) -> Mapping[str, float]:
    return time_kernels(folder, timing_inputs(read_build(folder)), threads, seconds, _MIN_RUNS).kernels_s


def _compare(folder: Path, baseline: Path, threads: int, schedule: TurnSchedule) -> TimedPair:
    inputs = timing_inputs(read_build(folder))
    engines = {str(build): build_engine(build, inputs, "cpu", threads) for build in (folder, baseline)}
    times = time_interleaved({name: engine.run for name, engine in engines.items()}, schedule)
    times_s, baseline_times_s = times[str(folder)], times[str(baseline)]
    latency_s, baseline_latency_s = (float(np.median(np.concatenate(turns))) for turns in (times_s, baseline_times_s))
    return TimedPair(latency_s, baseline_latency_s, float(np.median(ratios(times_s, baseline_times_s))))
