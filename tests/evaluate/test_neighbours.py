"""Busy neighbours take processor time beside this process, and never outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from anole.errors import AnoleError
from anole.evaluate.neighbours import busy_neighbours

SCRIPT = """
import signal, time
from anole.evaluate.neighbours import busy_neighbours
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
with busy_neighbours(2) as ids:
    print(*ids, flush=True)
    time.sleep(60)
"""


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether something comes true within some time."""
    end_s = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


def is_gone(process: int) -> bool:
    """Whether a process has ended; its parent may not have asked for its status."""
    return not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE


def test_neighbours_are_busy_until_the_block_ends() -> None:
    with busy_neighbours(2) as ids:
        assert len(set(ids)) == 2
        for process in ids:
            assert within(10, lambda process=process: psutil.Process(process).cpu_times().user > 0.05)
            assert os.getpriority(os.PRIO_PROCESS, process) == os.getpriority(os.PRIO_PROCESS, 0)
            assert os.sched_getaffinity(process) == os.sched_getaffinity(0)
    assert not any(map(psutil.pid_exists, ids))


def test_no_neighbours_are_none() -> None:
    with busy_neighbours(0) as ids:
        assert ids == []


def test_neighbours_end_when_the_block_fails() -> None:
    with pytest.raises(KeyError), busy_neighbours(1) as ids:
        raise KeyError
    assert not any(map(psutil.pid_exists, ids))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_neighbours_do_not_outlive_a_killed_parent(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        ids = list(map(int, parent.stdout.readline().split()))
        assert len(ids) == 2 and not any(map(is_gone, ids))
        parent.send_signal(how)
    assert within(10, lambda: all(map(is_gone, ids)))


def test_a_neighbour_that_ends_too_early_is_found_out() -> None:
    with pytest.raises(AnoleError, match="a busy neighbour ended before"), busy_neighbours(2) as ids:
        os.kill(ids[1], signal.SIGKILL)
        # Its main thread is gone before the others, and the process only when all are.
        assert within(10, lambda: os.waitid(os.P_PID, ids[1], os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
