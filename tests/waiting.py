"""Wait for other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil


def becomes_true(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    """Whether a condition becomes true within some seconds."""
    ends_s = time.monotonic() + within_s
    while not condition() and time.monotonic() < ends_s:
        time.sleep(0.01)
    return condition()


def has_ended(pid: int) -> bool:
    """Whether a process has ended, even if its parent has not waited for it."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
