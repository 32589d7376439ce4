"""Interleaved timing of several engines, which spreads disturbances of the machine over all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anole.host.cores import caller_on_separate_core, spread_busy_threads

Times = NDArray[np.float64]
"""The seconds of each run in one turn, shape (n_runs,), without warm-up runs."""


@dataclass(frozen=True)
class Pace:
    """The number and duration of the turns of engines.

    Attributes:
        rounds: number of turns of each engine.
        burst_s: min timed seconds of one turn.
        pause_s: seconds of rest before every turn. An engine's threads spin for a while after its last run and would
            otherwise take the cores from the next engine.
        limit_s: no new round begins after this many seconds, once there have been three.
        min_runs: min timed runs of one turn.
    """

    rounds: int = 30
    burst_s: float = 0.05
    pause_s: float = 0.05
    limit_s: float = 60.0
    min_runs: int = 1


def time_interleaved(engines: Mapping[str, Callable[[], object]], pace: Pace) -> dict[str, list[Times]]:
    """Time functions that run a network once in this process, with each thread pinned to a core; see `take_turns`."""
    for run in engines.values():
        spread_busy_threads(run)
    with caller_on_separate_core():
        return take_turns(
            {name: partial(burst, run, pace.burst_s, pace.min_runs) for name, run in engines.items()}, pace
        )


def take_turns(turns: Mapping[str, Callable[[], Times]], pace: Pace) -> dict[str, list[Times]]:
    """Give engines short turns, such as a `burst`; the order rotates every round."""
    names = list(turns)
    times: dict[str, list[Times]] = {name: [] for name in names}
    began_s = time.perf_counter()
    for round_ in range(pace.rounds):
        if round_ >= 3 and time.perf_counter() - began_s > pace.limit_s:
            break
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            time.sleep(pace.pause_s)
            times[name].append(turns[name]())
    return times


def burst(run: Callable[[], object], burst_s: float, min_runs: int = 1) -> Times:
    """Run an engine repeatedly after two warm-up runs, for at least `burst_s` seconds and `min_runs` times."""
    run()
    run()
    times_s: list[float] = []
    total_s = 0.0
    while len(times_s) < min_runs or total_s < burst_s:
        before_s = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - before_s)
        total_s += times_s[-1]
    return np.array(times_s)


def ratios(times_a: Sequence[Times], times_b: Sequence[Times]) -> NDArray[np.float64]:
    """Return the ratio of two engines' median times for each round, A over B.

    A shared machine often changes its speed between rounds, but rarely within one.
    """
    return np.array([np.median(a) / np.median(b) for a, b in zip(times_a, times_b, strict=True)])
