"""Timing of two engines in one process, in short alternating turns; every round uses a new process.

Two copies of one build differ in speed because of the process: its memory addresses and the layout of the interpreter.
In two processes, a network of 60 microseconds differs from itself by 3.5 % (standard deviation); in one, by 0.5 %. A
new process for every round, with the builds loaded in random order and at different addresses, makes this a random
error, which more rounds reduce. Runs are discarded if their threads waited for a CPU, unless hardly any run remains.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import log
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from anole.errors import BuildError, MachineError, MeasureError
from anole.evaluate.comparison import compare_outputs
from anole.evaluate.engines import Engine
from anole.host.process import CallError, Worker

_MIN_TURN_S, _MIN_RUNS = 5e-3, 2
"""Min seconds and runs of a turn: background load changes from one time slice to the next, which takes milliseconds."""

_MIN_MEASURED_S = 5e-4
"""Min seconds of a single measurement, in one run or several: reading the threads' waiting times takes microseconds."""

_LONG_RUN_S = 2e-2
"""A run of at least this duration is not just a disturbed short run."""

_MIN_ROUND_S, _MAX_ROUND_S, _MIN_UNDISTURBED_RUNS = 0.3, 3.0, 30
"""A round ends between the two durations, as soon as each engine has the min number of undisturbed runs."""

_MAX_WAITING_SHARE = 0.01
"""Max waiting time of all threads together during an undisturbed run, as a share of the run's time."""

_FASTEST_SHARE, _MIN_FASTEST = 0.1, 3
"""The latency is the mean of the fastest runs: their share, and their min number."""

_MAX_GAP_BYTES = 1 << 20
_CALL_LIMIT_S = 600.0

_GAPS: list[NDArray[np.uint8]] = []
"""Memory blocks between the engines of this process, kept allocated."""

Start = Callable[[], Engine]

Runs = list[tuple[float, float]]
"""The seconds that each measurement took, and the seconds that its threads waited for a CPU."""


@dataclass(frozen=True)
class Round:
    """Each engine's latency in one round, see `latency_s`, and the share of undisturbed runs."""

    latencies_s: tuple[float, float]
    undisturbed: float


class PairTimer:
    """A timer that takes rounds, each in a separate process, and keeps them.

    Args:
        starts: creates each engine in the process; must be picklable.
        preload: modules to import before processes are forked.
        environment: environment variables of the processes.
        where: prefix of error messages.
        seed: seed of all randomness.
    """

    def __init__(
        self,
        starts: tuple[Start, Start],
        preload: Sequence[str],
        environment: Mapping[str, str],
        where: str,
        seed: int = 0,
    ) -> None:
        self.rounds: list[Round] = []
        self._starts, self._where, self._random = starts, where, random.Random(seed)
        self._preload, self._environment = [*preload, __name__, "anole.evaluate.engine_factories"], environment

    def take(self) -> float:
        """Take a round, and return the logarithm of the second engine's latency over the first one's.

        Raises:
            BuildError: an engine cannot be started, crashes or hangs.
        """
        self.rounds.append(self._call(_take_round))
        first_s, second_s = self.rounds[-1].latencies_s
        return log(second_s / first_s)

    def differ(self, samples: Sequence[Sequence[NDArray[Any]]]) -> float:
        """Return the largest relative L2 distance between the engines' outputs, over all outputs and samples.

        The first sample must have the inputs that the engines started with.

        Raises:
            BuildError: an engine cannot be started, crashes or hangs.
        """
        error: float = self._call(_differ, samples)
        return error

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function with both engines, a random number generator and arguments in a new process."""
        start = partial(_start, self._starts, self._random.getrandbits(32))
        try:
            with Worker(start, preload=self._preload, environment=self._environment) as worker:
                return worker.call(function, *arguments, timeout_s=_CALL_LIMIT_S)
        except MachineError:
            raise
        except (MeasureError, CallError) as error:
            raise BuildError(f"{self._where}: cannot be compared: {error}") from error


def _start(starts: tuple[Start, Start], seed: int) -> Callable[..., Any]:
    """Create the engines in random order, with memory between them; return the function that handles calls."""
    rng = random.Random(seed)
    engines: dict[int, Engine] = {}
    for index in rng.sample((0, 1), 2):
        _GAPS.append(np.ones(rng.randrange(_MAX_GAP_BYTES), np.uint8))
        engines[index] = starts[index]()
        for _ in range(2):
            engines[index].run()
    return lambda function, *arguments: function((engines[0], engines[1]), rng, *arguments)


def _differ(engines: tuple[Engine, Engine], _: random.Random, samples: Sequence[Sequence[NDArray[Any]]]) -> float:
    outputs_a, outputs_b = (engine.compute_each(samples) for engine in engines)
    return compare_outputs(outputs_b, outputs_a).relative_error


def _take_round(engines: tuple[Engine, Engine], rng: random.Random) -> Round:
    """Time both engines in blocks of four turns, with a random first engine."""
    runs: tuple[Runs, Runs] = ([], [])
    with WaitMeter() as meter:
        runs_per_measurement = _runs_per_measurement(engines, meter)
        began_s = time.perf_counter()
        while True:
            first = rng.randrange(2)
            for index in (first, 1 - first, 1 - first, first):
                runs[index].extend(_turn(engines[index].run, runs_per_measurement, meter))
            spent_s = time.perf_counter() - began_s
            if spent_s >= _MAX_ROUND_S:
                break
            if spent_s >= _MIN_ROUND_S and min(len(drop_disturbed(times)) for times in runs) >= _MIN_UNDISTURBED_RUNS:
                break
    share = sum(len(drop_disturbed(engine_runs)) for engine_runs in runs) / sum(map(len, runs))
    return Round((latency_s(runs[0]) / runs_per_measurement, latency_s(runs[1]) / runs_per_measurement), share)


def _turn(run: Callable[[], object], number: int, meter: WaitMeter) -> Runs:
    """Run an engine for a turn, after an untimed run with cold caches."""
    run()
    measurements: Runs = []
    while len(measurements) < _MIN_RUNS or sum(run_s for run_s, _ in measurements) < _MIN_TURN_S:
        measurements.append(time_runs(run, number, meter))
    return measurements


def _runs_per_measurement(engines: Sequence[Engine], meter: WaitMeter) -> int:
    """Return the number of runs per measurement; for a long network it is determined from a single run."""
    fastest_s = min(time_runs(engine.run, 1, meter)[0] for engine in engines)
    if fastest_s < _LONG_RUN_S:
        fastest_s = min(fastest_s, *(time_runs(engine.run, 1, meter)[0] for engine in engines for _ in range(5)))
    return max(1, round(_MIN_MEASURED_S / fastest_s))


class WaitMeter:
    """A context manager that reads how long the threads of this process have waited for a CPU.

    It reads the statistics of each thread in Linux's ``/proc``, but not of threads that start later. If the system has
    no such statistics, waiting times are 0.
    """

    def __enter__(self) -> Self:
        self._files: list[int] = []
        for task in Path("/proc/self/task").glob("*"):
            with suppress(OSError):
                self._files.append(os.open(task / "schedstat", os.O_RDONLY | os.O_CLOEXEC))
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            os.close(file)

    def waited_s(self) -> float:
        """Return the seconds that all threads together have waited since they started."""
        waited_ns = 0
        for file in self._files:
            with suppress(OSError, IndexError, ValueError):  # the thread has ended
                waited_ns += int(os.pread(file, 64, 0).split()[1])
        return waited_ns * 1e-9


def time_runs(run: Callable[[], object], number: int, meter: WaitMeter) -> tuple[float, float]:
    """Run an engine `number` times; return the seconds that it took, and the seconds that its threads waited."""
    waited_s, began_s = meter.waited_s(), time.perf_counter()
    for _ in range(number):
        run()
    took_s = time.perf_counter() - began_s
    return took_s, meter.waited_s() - waited_s


def drop_disturbed(runs: Runs) -> NDArray[np.float64]:
    """Return the seconds of the undisturbed runs."""
    times_s, waits_s = np.array(runs).reshape(-1, 2).T
    return np.asarray(times_s[waits_s <= _MAX_WAITING_SHARE * times_s])


def latency_s(runs: Runs) -> float:
    """Return the mean of the fastest tenth of the undisturbed runs, or of all runs if hardly any is undisturbed.

    Undisturbed runs are selected by their waiting times only, which favors neither engine. The fastest of them were
    disturbed least by the rest of the machine, such as its caches and its host.
    """
    times_s = drop_disturbed(runs)
    if len(times_s) < _MIN_FASTEST:
        times_s = np.array(runs)[:, 0]
    return float(np.sort(times_s)[: max(_MIN_FASTEST, round(_FASTEST_SHARE * len(times_s)))].mean())
