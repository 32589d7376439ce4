"""Timing of engines under background load, as in a service on a shared machine."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from anole.documents.evaluation import LoadLatency
from anole.errors import AnoleError
from anole.evaluate.engines import Engine
from anole.evaluate.timing.engine_process import EngineError, EngineProcess, start_engines
from anole.evaluate.timing.turns import Times, TurnSchedule, take_turns
from anole.measure.device_access import DeviceAccess
from anole.text_format import pluralize

_log = logging.getLogger(__name__)

LOAD_SCHEDULE = TurnSchedule(max_rounds=6, min_burst_s=1.0, min_runs=8, limit_s=600.0)
"""Up to six turns of at least one second and eight runs; very slow networks take three, one of 10 ms has 600 runs. A
time slice is a few milliseconds, so a turn of one second spans many of them."""

_BUSY_PROGRAM = """
import os, threading

def end_with_parent():
    os.read(0, 1)
    os._exit(0)

threading.Thread(target=end_with_parent, daemon=True).start()
os.write(1, b"!")
while True:
    pass
"""
"""The source code of a busy process. One of its threads waits for the end of standard input, which the system closes
when the parent process ends, even if the parent is killed."""


def time_under_load(
    starts: Mapping[str, Callable[[], Engine]],
    counts: Sequence[int],
    access: DeviceAccess,
    where: object,
    schedule: TurnSchedule = LOAD_SCHEDULE,
) -> list[LoadLatency]:
    """Interleave the timing of engines, once for each number of busy processes; no thread is pinned to a core.

    Each engine has a separate process, which sleeps except during its turns; only the first engine must start. Messages
    begin with `where`.

    Raises:
        EngineError: the first engine does not start, or an engine fails during the turns.
        AnoleError: a busy process exited too early.
    """
    latencies: list[LoadLatency] = []
    with ExitStack() as stack:
        engines = start_engines(starts, stack, where, pinned=False)
        timers = {name: partial(_turn, engine, schedule, f"{where}: {name}") for name, engine in engines.items()}
        with access.timing():
            for count in counts:
                with run_busy_processes(count):
                    times = take_turns(timers, schedule)
                latencies += [
                    replace(load_latency(name, count, times_s), start_s=engines[name].started.start_s)
                    for name, times_s in times.items()
                ]
    return latencies


def _turn(engine: EngineProcess, schedule: TurnSchedule, prefix: str) -> Times:
    try:
        return engine.burst(schedule.min_burst_s, schedule.min_runs)
    except EngineError as error:
        raise EngineError(f"{prefix}: {error}") from error


def load_latency(engine: str, neighbours: int, times: Sequence[Times]) -> LoadLatency:
    """Return an engine's latency percentiles over the runs in all turns, without interpolation."""
    runs_s = np.concatenate(times)
    p50_s, p95_s, p99_s = map(float, np.percentile(runs_s, (50, 95, 99), method="inverted_cdf"))
    return LoadLatency(engine, neighbours, p50_s, p95_s, p99_s, len(runs_s), len(times))


def log_load(name: str, latencies: Sequence[LoadLatency]) -> None:
    """Log a line for each number of busy processes and each reference."""
    builds = {latency.neighbours: latency for latency in latencies if latency.engine == "build"}
    for reference in latencies:
        if reference.engine != "build":
            build = builds[reference.neighbours]
            speedups = (reference.p50_s / build.p50_s, reference.p95_s / build.p95_s, reference.p99_s / build.p99_s)
            _log.info(
                "%s: with %s: p50/p95/p99 %s, against %s of %s (%s), %d and %d runs",
                *(name, pluralize(reference.neighbours, "busy process"), *map(_milliseconds, (build, reference))),
                *(reference.engine, "/".join(f"{speedup:.2f}x" for speedup in speedups), build.runs, reference.runs),
            )


def _milliseconds(latency: LoadLatency) -> str:
    return "/".join(f"{1e3 * seconds:.3f}" for seconds in (latency.p50_s, latency.p95_s, latency.p99_s)) + " ms"


@contextmanager
def run_busy_processes(count: int) -> Iterator[list[int]]:
    """Run busy processes with the priority and the cores of this one; yield their process IDs.

    They end with the block, or with this process, even if it is killed.

    Raises:
        AnoleError: a busy process does not start, or exits before the block ends.
    """
    with ExitStack() as stack:
        processes = [stack.enter_context(_run_busy_process()) for _ in range(count)]
        yield [process.pid for process in processes]
        if any(process.poll() is not None for process in processes):
            raise AnoleError("a busy process ended before the timing did, so the result is invalid; run it again")


@contextmanager
def _run_busy_process() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, wait until it is busy, and kill it after the block."""
    command = [sys.executable, "-I", "-S", "-c", _BUSY_PROGRAM]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.read(1):
                raise AnoleError(f"a busy process does not start: it exited with {process.wait()}")
            yield process
        finally:
            process.kill()
