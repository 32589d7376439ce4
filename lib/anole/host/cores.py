"""Bind threads of this process to cores."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_OBSERVATION_S = 0.2
_MIN_BUSY_SHARE = 0.25
"""Minimum CPU time of a busy thread, relative to the busiest; wall-clock time would depend on other processes."""


@contextmanager
def keep_caller_on_separate_core() -> Iterator[None]:
    """Keep the calling thread on a core to which no other thread of this process is bound, if there is one.

    TVM binds each of its threads to a core, but not the caller, which runs a share of every kernel; other engines bind
    no threads. If the caller lands on another thread's core, the scheduler may leave both there for seconds, and each
    timed run then takes twice as long.
    """
    original_cores = os.sched_getaffinity(0)
    free_cores = original_cores - _cores_of_bound_threads()
    if not free_cores:
        yield
        return
    os.sched_setaffinity(0, {min(free_cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, original_cores)


def spread_busy_threads(run: Callable[[], object]) -> None:
    """Bind each thread that is busy during a run to a separate core, and leave one core to the caller.

    Engines that bind no threads may run for seconds with two threads on one core, at a quarter of their speed. Threads
    that are already bound stay where they are, as do threads for which no core is left. `run` is called repeatedly for
    0.2 s.
    """
    before, began_s = _cpu_seconds(), time.perf_counter()
    while time.perf_counter() - began_s < _OBSERVATION_S:
        run()
    busy_s = {thread: after_s - before.get(thread, 0.0) for thread, after_s in _cpu_seconds().items()}
    min_s = _MIN_BUSY_SHARE * max(busy_s.values())
    busy = [thread for thread in busy_s if busy_s[thread] > min_s]
    affinities = {thread: os.sched_getaffinity(thread) for thread in busy if thread != threading.get_native_id()}
    bound_cores = {core for cores in affinities.values() if len(cores) == 1 for core in cores}
    free = sorted(os.sched_getaffinity(0) - bound_cores)[1:]
    for thread, core in zip((thread for thread, cores in affinities.items() if len(cores) > 1), free, strict=False):
        os.sched_setaffinity(thread, {core})


def _cpu_seconds() -> dict[int, float]:
    """Return the CPU seconds of every thread of this process."""
    seconds = {}
    for task in Path("/proc/self/task").iterdir():
        thread = int(task.name)
        with suppress(OSError):  # the thread has ended
            # Linux's id of a thread's CPU clock; time.pthread_getcpuclockid only accepts Python's own threads.
            seconds[thread] = time.clock_gettime((~thread << 3) | 6)
    return seconds


def _cores_of_bound_threads() -> set[int]:
    """Return the cores of other threads that are bound to exactly one core."""
    bound_cores: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            cores = os.sched_getaffinity(int(task.name))
        except ProcessLookupError:
            continue
        if len(cores) == 1 and int(task.name) != threading.get_native_id():
            bound_cores |= cores
    return bound_cores
