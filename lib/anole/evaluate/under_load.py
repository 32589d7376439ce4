"""Times engines beside busy neighbours, as a service on a shared machine would see them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np

from anole.documents.evaluation import LoadLatency
from anole.evaluate.engine_process import EngineError, EngineProcess, start_engines
from anole.evaluate.engines import Engine
from anole.evaluate.interleave import Pace, Times, take_turns
from anole.evaluate.neighbours import busy_neighbours
from anole.measure.site import Site

_log = logging.getLogger(__name__)

LOAD_PACE = Pace(rounds=6, burst_s=1.0, least_runs=8, limit_s=600.0)
"""Six turns of at least one second and eight runs, hence at least 48 runs; a network of 10 ms has 600. A time slice is
some milliseconds, so that a turn of one second meets many of them."""


def time_under_load(
    starts: Mapping[str, Callable[[], Engine]], counts: Sequence[int], site: Site, where: object, pace: Pace = LOAD_PACE
) -> list[LoadLatency]:
    """Times engines in turns, once for each number of busy neighbours; nothing is pinned to a core.

    Each engine has a process of its own, which sleeps except during its turns.

    Args:
        starts: creates each engine in its process, by the engine's name; the first one is required.
        counts: numbers of busy neighbours.
        site: where the engines run; holds the lock of all timing.
        where: the network's build; begins each message.
        pace: length and number of the turns.

    Returns:
        The latency of each engine that starts, for one number of neighbours after the other.

    Raises:
        EngineError: the first engine does not start, or an engine fails during the turns.
        AnoleError: a neighbour ended too early.
    """
    latencies: list[LoadLatency] = []
    with ExitStack() as running:
        engines = start_engines(starts, running, where, pinned=False)
        turns = {name: partial(_turn, engine, pace, f"{where}: {name}") for name, engine in engines.items()}
        with site.timing():
            for count in counts:
                with busy_neighbours(count):
                    times = take_turns(turns, pace)
                latencies += [
                    replace(load_latency(name, count, times_s), start_s=engines[name].started.start_s)
                    for name, times_s in times.items()
                ]
    return latencies


def _turn(engine: EngineProcess, pace: Pace, which: str) -> Times:
    """Lets an engine take a turn; an error names it."""
    try:
        return engine.burst(pace.burst_s, pace.least_runs)
    except EngineError as error:
        raise EngineError(f"{which}: {error}") from error


def load_latency(engine: str, neighbours: int, times: Sequence[Times]) -> LoadLatency:
    """Returns the percentiles of the runs of all turns of an engine; each is the time of one of them."""
    runs_s = np.concatenate(times)
    p50_s, p95_s, p99_s = map(float, np.percentile(runs_s, (50, 95, 99), method="inverted_cdf"))
    return LoadLatency(engine, neighbours, p50_s, p95_s, p99_s, len(runs_s), len(times))


def log_load(name: str, latencies: Sequence[LoadLatency]) -> None:
    """Logs a line for each number of neighbours and each reference."""
    own = {latency.neighbours: latency for latency in latencies if latency.engine == "build"}
    for latency in latencies:
        if latency.engine != "build":
            _log.info("%s: %s", name, compared(own[latency.neighbours], latency))


def compared(own: LoadLatency, other: LoadLatency) -> str:
    """Returns in words the latencies of a build and of a reference beside the same neighbours."""
    ratios = (other.p50_s / own.p50_s, other.p95_s / own.p95_s, other.p99_s / own.p99_s)
    processes = "process" if own.neighbours == 1 else "processes"
    return (
        f"beside {own.neighbours} busy {processes}: p50/p95/p99 {_milliseconds(own)}, "
        f"against {_milliseconds(other)} of {other.engine} ({'/'.join(f'{ratio:.2f}x' for ratio in ratios)}), "
        f"{own.runs} and {other.runs} runs"
    )


def _milliseconds(latency: LoadLatency) -> str:
    return "/".join(f"{1e3 * seconds:.3f}" for seconds in (latency.p50_s, latency.p95_s, latency.p99_s)) + " ms"
