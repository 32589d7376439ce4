"""Times two engines in one process, in short turns; every round has a new process.

What makes two copies of one build differ lies in the process: where its memory is, and how the interpreter is laid
out. In two processes, a network of 60 microseconds differs from itself by 3.5 % (standard deviation); in one, by 0.5 %.
A new process for every round, with the builds loaded in random order and at other addresses, makes that an error of
chance, which more rounds remove.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import BuildError, MachineError, MeasureError
from anole.evaluate.comparison import compare_outputs
from anole.evaluate.engines import Engine
from anole.evaluate.undisturbed import WaitMeter, latency_s, timed, undisturbed
from anole.host.process import CallError, Worker

_TURN_S, _LEAST_RUNS = 5e-3, 2
"""Least seconds and runs of a turn: neighbours change from one time slice to the next, which takes milliseconds."""

_MEASURED_S = 5e-4
"""Least seconds that are timed at once, in one run or several: reading what threads waited takes some microseconds."""

_SURELY_LONG_S = 2e-2
"""A run that takes so long was not only disturbed."""

_ROUND_S, _ROUND_LIMIT_S, _UNDISTURBED_RUNS = 0.3, 3.0, 30
"""A round ends after so many seconds if each engine has so many undisturbed runs, and at the limit otherwise."""

_MOST_BYTES_APART = 1 << 20
_CALL_LIMIT_S = 600.0

_APART: list[NDArray[np.uint8]] = []
"""Memory between the engines of this process, which nobody else gets."""

Start = Callable[[], Engine]


@dataclass(frozen=True)
class Round:
    """What one round found.

    Attributes:
        latencies_s: the latency of each engine when nothing disturbs it.
        undisturbed: the share of runs that nothing disturbed.
    """

    latencies_s: tuple[float, float]
    undisturbed: float

    @property
    def log_ratio(self) -> float:
        """The logarithm of the second latency over the first."""
        return log(self.latencies_s[1] / self.latencies_s[0])


class PairTimer:
    """Takes rounds, each in a process of its own.

    Args:
        starts: creates each engine in the process; must be picklable.
        preload: modules to import before processes are forked.
        environment: environment variables of the processes.
        where: the builds; begins each message.
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
        self._starts, self._where, self._random = starts, where, random.Random(seed)
        self._preload, self._environment = [*preload, __name__, "anole.evaluate.alone"], environment

    def take(self) -> Round:
        """Takes a round.

        Raises:
            BuildError: an engine cannot be started, crashes or hangs.
        """
        found: Round = self._call(_take_round)
        return found

    def differ(self, samples: Sequence[Sequence[NDArray[Any]]]) -> float:
        """Returns how far the engines' outputs are apart: the largest relative L2 distance of any on any inputs.

        Args:
            samples: inputs; the first ones are those that the engines have.

        Raises:
            BuildError: an engine cannot be started, crashes or hangs.
        """
        found: float = self._call(_differ, samples)
        return found

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function of both engines, and of a source of random numbers, in a new process."""
        start = partial(_start, self._starts, self._random.getrandbits(32))
        try:
            with Worker(start, preload=self._preload, environment=self._environment) as worker:
                return worker.call(function, *arguments, timeout_s=_CALL_LIMIT_S)
        except MachineError:
            raise
        except (MeasureError, CallError) as error:
            raise BuildError(f"{self._where}: cannot be compared: {error}") from error


def _start(starts: tuple[Start, Start], seed: int) -> Callable[..., Any]:
    """Creates the engines in random order, with memory between them; returns the function that handles calls."""
    rng = random.Random(seed)
    engines: dict[int, Engine] = {}
    for which in rng.sample((0, 1), 2):
        _APART.append(np.ones(rng.randrange(_MOST_BYTES_APART), np.uint8))
        engines[which] = starts[which]()
        for _ in range(2):
            engines[which].run()
    return lambda function, *arguments: function((engines[0], engines[1]), rng, *arguments)


def _differ(engines: tuple[Engine, Engine], _: random.Random, samples: Sequence[Sequence[NDArray[Any]]]) -> float:
    first, second = (engine.compute_each(samples) for engine in engines)
    return compare_outputs(second, first).relative_error


def _take_round(engines: tuple[Engine, Engine], rng: random.Random) -> Round:
    """Times both engines in blocks of four turns, which begin with either one."""
    runs: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
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
    latencies_s = tuple(latency_s(own) / number for own in runs)
    return Round((latencies_s[0], latencies_s[1]), share)


def _turn(run: Callable[[], object], number: int, meter: WaitMeter) -> list[tuple[float, float]]:
    """Lets an engine take a turn, after a run that finds its data in no cache."""
    run()
    taken: list[tuple[float, float]] = []
    while len(taken) < _LEAST_RUNS or sum(took_s for took_s, _ in taken) < _TURN_S:
        taken.append(timed(run, number, meter))
    return taken


def _runs_at_once(engines: Sequence[Engine], meter: WaitMeter) -> int:
    """Returns how many runs are timed at once: one of a long network, whose runs are not spent on finding out."""
    fastest_s = min(timed(engine.run, 1, meter)[0] for engine in engines)
    if fastest_s < _SURELY_LONG_S:
        fastest_s = min(fastest_s, *(timed(engine.run, 1, meter)[0] for engine in engines for _ in range(5)))
    return max(1, round(_MEASURED_S / fastest_s))
