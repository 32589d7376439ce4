"""Timing several engines in one process, so that what the machine does meanwhile meets all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anole.cores import caller_apart


@dataclass(frozen=True)
class Pace:
    """How long is measured, and how.

    Attributes:
        rounds: how many turns each engine has.
        burst_s: how long one turn is timed, at least one run.
        pause_s: rest before every turn. The threads of each engine spin for a while after its last run, and
            would take the cores from the next engine's.
        limit_s: no new round begins after so many seconds, once there were three.
    """

    rounds: int = 30
    burst_s: float = 0.05
    pause_s: float = 0.05
    limit_s: float = 60.0


def time_interleaved(engines: Mapping[str, Callable[[], object]], pace: Pace) -> dict[str, list[NDArray[np.float64]]]:
    """Times engines in short turns; every round begins with another one.

    Args:
        engines: by name, what runs the network once.
        pace: how long, and how.

    Returns:
        For every engine and round the seconds of each run, shape (n_runs,), without those that warm up.
    """
    names = list(engines)
    times: dict[str, list[NDArray[np.float64]]] = {name: [] for name in names}
    began_s = time.perf_counter()
    with caller_apart():
        for number in range(pace.rounds):
            if number >= 3 and time.perf_counter() - began_s > pace.limit_s:
                break
            for name in names[number % len(names) :] + names[: number % len(names)]:
                time.sleep(pace.pause_s)
                times[name].append(_burst(engines[name], pace.burst_s))
    return times


def _burst(run: Callable[[], object], burst_s: float) -> NDArray[np.float64]:
    run()
    run()
    taken: list[float] = []
    while not taken or sum(taken) < burst_s:
        before_s = time.perf_counter()
        run()
        taken.append(time.perf_counter() - before_s)
    return np.array(taken)
