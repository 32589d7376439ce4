"""The calling thread gives way to threads that are bound to a core, and comes back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from anole.cores import caller_apart

ALLOWED = os.sched_getaffinity(0)

needs_two_cores = pytest.mark.skipif(len(ALLOWED) < 2, reason="the process may use one core alone")


@contextmanager
def bound_threads(*cores: set[int]) -> Iterator[None]:
    """Threads that do nothing, each on its cores."""
    done, ready = threading.Event(), threading.Barrier(len(cores) + 1)

    def wait(mine: set[int]) -> None:
        os.sched_setaffinity(0, mine)
        ready.wait()
        done.wait()

    threads = [threading.Thread(target=wait, args=(mine,)) for mine in cores]
    for thread in threads:
        thread.start()
    ready.wait()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


@needs_two_cores
@pytest.mark.parametrize("taken", [min, max])
def test_the_caller_leaves_the_cores_that_others_are_bound_to(taken: Callable[[set[int]], int]) -> None:
    with bound_threads({taken(ALLOWED)}):
        with caller_apart():
            assert os.sched_getaffinity(0) == {min(ALLOWED - {taken(ALLOWED)})}
        assert os.sched_getaffinity(0) == ALLOWED


@needs_two_cores
def test_a_thread_that_may_move_takes_no_core() -> None:
    with bound_threads(ALLOWED), caller_apart():
        assert os.sched_getaffinity(0) == {min(ALLOWED)}


def test_the_caller_stays_where_every_core_is_taken() -> None:
    with bound_threads(*({core} for core in ALLOWED)), caller_apart():
        assert os.sched_getaffinity(0) == ALLOWED


@needs_two_cores
def test_the_caller_comes_back_after_an_error() -> None:
    with bound_threads({min(ALLOWED)}), pytest.raises(ZeroDivisionError), caller_apart():
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == ALLOWED
