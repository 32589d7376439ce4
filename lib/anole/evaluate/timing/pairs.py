"""Times two engines in one process, in short turns; every round has a new process.

What makes two copies of one build differ lies in the process: where its memory is, and how the interpreter is laid
out. In two processes, a network of 60 microseconds differs from itself by 3.5 % (standard deviation); in one, by 0.5 %.
A new process for every round, with the builds loaded in random order and at other addresses, makes that an error of
chance, which more rounds remove. Of each engine, only runs during which no thread waited for a processor count.
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

_TURN_S, _MIN_RUNS = 5e-3, 2
"""Least seconds and runs of a turn: neighbours change from one time slice to the next, which takes milliseconds."""

_MEASURED_S = 5e-4
"""Least seconds that are timed at once, in one run or several: reading what threads waited takes some microseconds."""

_SURELY_LONG_S = 2e-2
"""A run that takes so long was not only disturbed."""

_ROUND_S, _ROUND_LIMIT_S, _UNDISTURBED_RUNS = 0.3, 3.0, 30
"""A round ends after so many seconds if each engine has so many undisturbed runs, and at the limit otherwise."""

_UNDISTURBED = 0.01
"""The share of a run that all threads together may wait."""

_FASTEST, _MIN_CALLS = 0.1, 3
"""The share of runs, and their least number, whose mean is the latency."""

_MAX_BYTES_APART = 1 << 20
_CALL_LIMIT_S = 600.0

_APART: list[NDArray[np.uint8]] = []
"""Memory between the engines of this process, which nobody else gets."""

Start = Callable[[], Engine]

Runs = list[tuple[float, float]]
"""The seconds that each run took, and those that its threads waited meanwhile."""


@dataclass(frozen=True)
class Round:
    """The latency of each engine in one round while nothing disturbs it, and the share of such runs."""

    latencies_s: tuple[float, float]
    undisturbed: float


class PairTimer:
    """Takes rounds, each in a process of its own, and keeps them.

    Args:
        starts: creates each engine in the process; must be picklable.
        preload: modules to import before processes are forked.
        environment: environment variables of the processes.
        where: begins each message.
        seed: seed of all that is random.
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
        """Return how far the engines' outputs are apart: the largest relative L2 distance of any on any inputs.

        The first inputs are those that the engines have.

        Raises:
            BuildError: an engine cannot be started, crashes or hangs.
        """
        found: float = self._call(_differ, samples)
        return found

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of both engines, and of a source of random numbers, in a new process."""
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
    for which in rng.sample((0, 1), 2):
        _APART.append(np.ones(rng.randrange(_MAX_BYTES_APART), np.uint8))
        engines[which] = starts[which]()
        for _ in range(2):
            engines[which].run()
    return lambda function, *arguments: function((engines[0], engines[1]), rng, *arguments)


def _differ(engines: tuple[Engine, Engine], _: random.Random, samples: Sequence[Sequence[NDArray[Any]]]) -> float:
    first, second = (engine.compute_each(samples) for engine in engines)
    return compare_outputs(second, first).relative_error


def _take_round(engines: tuple[Engine, Engine], rng: random.Random) -> Round:
    """Time both engines in blocks of four turns, which begin with either one."""
    runs: tuple[Runs, Runs] = ([], [])
    with WaitMeter() as meter:
        number = _runs_at_once(engines, meter)
        began_s = time.perf_counter()
        while True:
            first = rng.randrange(2)
            for which in (first, 1 - first, 1 - first, first):
                runs[which].extend(_turn(engines[which].run, number, meter))
            spent_s = time.perf_counter() - began_s
            if spent_s >= _ROUND_LIMIT_S:
                break
            if spent_s >= _ROUND_S and min(len(undisturbed(own)) for own in runs) >= _UNDISTURBED_RUNS:
                break
    share = sum(len(undisturbed(own)) for own in runs) / sum(map(len, runs))
    return Round((latency_s(runs[0]) / number, latency_s(runs[1]) / number), share)


def _turn(run: Callable[[], object], number: int, meter: WaitMeter) -> Runs:
    """Let an engine take a turn, after a run that finds its data in no cache."""
    run()
    taken: Runs = []
    while len(taken) < _MIN_RUNS or sum(took_s for took_s, _ in taken) < _TURN_S:
        taken.append(timed(run, number, meter))
    return taken


def _runs_at_once(engines: Sequence[Engine], meter: WaitMeter) -> int:
    """Return how many runs are timed at once: one of a long network, whose runs are not spent on finding out."""
    fastest_s = min(timed(engine.run, 1, meter)[0] for engine in engines)
    if fastest_s < _SURELY_LONG_S:
        fastest_s = min(fastest_s, *(timed(engine.run, 1, meter)[0] for engine in engines for _ in range(5)))
    return max(1, round(_MEASURED_S / fastest_s))


class WaitMeter:
    """Reads how long the threads of this process have waited for a processor; a context manager that closes its files.

    It reads what Linux counts for each thread in ``/proc``. Threads that begin later are not noticed. Where the system
    does not count, nothing has ever waited.
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
        """Return the seconds that all threads together have waited since they began."""
        waited_ns = 0
        for file in self._files:
            with suppress(OSError, IndexError, ValueError):  # the thread has ended
                waited_ns += int(os.pread(file, 64, 0).split()[1])
        return waited_ns * 1e-9


def timed(run: Callable[[], object], number: int, meter: WaitMeter) -> tuple[float, float]:
    """Run an engine `number` times; return the seconds that it took, and those that its threads waited meanwhile."""
    waited_s, began_s = meter.waited_s(), time.perf_counter()
    for _ in range(number):
        run()
    took_s = time.perf_counter() - began_s
    return took_s, meter.waited_s() - waited_s


def undisturbed(runs: Runs) -> NDArray[np.float64]:
    """Return the seconds of those runs that nothing disturbed."""
    times_s, waits_s = np.array(runs).reshape(-1, 2).T
    return np.asarray(times_s[waits_s <= _UNDISTURBED * times_s])


def latency_s(runs: Runs) -> float:
    """Return the mean of the fastest tenth of the undisturbed runs, or of all, if hardly any is undisturbed.

    The choice does not look at the times, so that it favours nobody. Within it, the fastest are those in which the rest
    of the machine, such as its caches and its host, disturbed least.
    """
    found = undisturbed(runs)
    if len(found) < _MIN_CALLS:
        found = np.array(runs)[:, 0]
    return float(np.sort(found)[: max(_MIN_CALLS, round(_FASTEST * len(found)))].mean())
