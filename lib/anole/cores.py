"""The cores that threads of this process run on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def caller_apart() -> Iterator[None]:
    """Keeps the calling thread on one core, which no other thread of this process is bound to.

    TVM binds each of its threads to a core, other engines bind none; nobody binds the caller, which takes its share of
    every kernel. Where it meets another on one core, the scheduler may leave them there for seconds, and all that is
    timed takes twice as long.
    """
    before = os.sched_getaffinity(0)
    free = before - _bound_elsewhere()
    if not free:
        yield
        return
    os.sched_setaffinity(0, {min(free)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _bound_elsewhere() -> set[int]:
    """Returns the cores that other threads are bound to, each to but one."""
    bound: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            cores = os.sched_getaffinity(int(task.name))
        except ProcessLookupError:
            continue
        if len(cores) == 1 and int(task.name) != threading.get_native_id():
            bound |= cores
    return bound
