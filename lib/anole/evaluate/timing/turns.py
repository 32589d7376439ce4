"""Interleaved timing of several engines, which spreads disturbances of the machine over all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anole.host.cores import keep_caller_on_separate_core, spread_busy_threads

Times = NDArray[np.float64]
"""The seconds of each run in one turn, shape (n_runs,), without warm-up runs."""


@dataclass(frozen=True)
class TurnSchedule:
    """The number and duration of the turns of engines. In each round, every engine has one turn.

    Attributes:
        max_rounds: max number of rounds; `limit_s` may end the timing earlier.
        min_burst_s: min timed seconds of one turn.
        pause_s: seconds of rest before every turn. An engine's threads spin for a while after its last run and would
            otherwise take the cores from the next engine.
        limit_s: no new round begins after this many seconds, except for the first three.
        min_runs: min timed runs of one turn.
    """

    max_rounds: int = 30
    min_burst_s: float = 0.05
    pause_s: float = 0.05
    limit_s: float = 60.0
    min_runs: int = 1


def time_interleaved(engines: Mapping[str, Callable[[], object]], schedule: TurnSchedule) -> dict[str, list[Times]]:
    """Spread busy threads over the cores, and time engines in this process; each function runs a network once."""
    for run in engines.values():
        spread_busy_threads(run)
    with keep_caller_on_separate_core():
        timers = {name: partial(burst, run, schedule.min_burst_s, schedule.min_runs) for name, run in engines.items()}
        return take_turns(timers, schedule)


def take_turns(timers: Mapping[str, Callable[[], Times]], schedule: TurnSchedule) -> dict[str, list[Times]]:
    """Time engines in rounds of rotating order; return the times of each turn. A timer takes a turn (see `burst`)."""
    names = list(timers)
    times: dict[str, list[Times]] = {name: [] for name in names}
    began_s = time.perf_counter()
    for round_ in range(schedule.max_rounds):
        if round_ >= 3 and time.perf_counter() - began_s > schedule.limit_s:
            break
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            time.sleep(schedule.pause_s)
            times[name].append(timers[name]())
    return times


def burst(run: Callable[[], object], min_burst_s: float, min_runs: int = 1) -> Times:
    """Run an engine repeatedly after two warm-up runs, for at least `min_burst_s` seconds and `min_runs` times."""
    run()
    run()
    times_s: list[float] = []
    total_s = 0.0
    while len(times_s) < min_runs or total_s < min_burst_s:
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
