"""Timing several engines in turns, so that what the machine does meanwhile meets all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anole.host.cores import caller_apart, spread_busy_threads

Times = NDArray[np.float64]
"""The seconds of each run of one turn, shape (n_runs,), without those that warm up."""


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


def time_interleaved(engines: Mapping[str, Callable[[], object]], pace: Pace) -> dict[str, list[Times]]:
    """Times engines of this process in short turns, their threads on a core each; every round begins with another one.

    Args:
        engines: by name, what runs the network once.
        pace: how long, and how.

    Returns:
        For every engine the times of its turns, one for each round.
    """
    for run in engines.values():
        spread_busy_threads(run)
    with caller_apart():
        return take_turns({name: partial(burst, run, pace.burst_s) for name, run in engines.items()}, pace)


def take_turns(turns: Mapping[str, Callable[[], Times]], pace: Pace) -> dict[str, list[Times]]:
    """Gives engines, wherever they run, one short turn after another; every round begins with another one.

    Args:
        turns: by name, what takes one turn, such as `burst`.
        pace: how many, and how long to rest before each.

    Returns:
        For every engine the times of its turns, one for each round.
    """
    names = list(turns)
    times: dict[str, list[Times]] = {name: [] for name in names}
    began_s = time.perf_counter()
    for number in range(pace.rounds):
        if number >= 3 and time.perf_counter() - began_s > pace.limit_s:
            break
        for name in names[number % len(names) :] + names[: number % len(names)]:
            time.sleep(pace.pause_s)
            times[name].append(turns[name]())
    return times


def burst(run: Callable[[], object], burst_s: float) -> Times:
    """Runs an engine again and again, at least once after two runs that warm up.

    Args:
        run: runs the network once.
        burst_s: how long is timed, at least.
    """
    run()
    run()
    taken: list[float] = []
    while not taken or sum(taken) < burst_s:
        before_s = time.perf_counter()
        run()
        taken.append(time.perf_counter() - before_s)
    return np.array(taken)
