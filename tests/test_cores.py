"""The calling thread has a core that no other thread is bound to, and comes back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context

import pytest

from anole.cores import caller_apart

Cores = set[int]


def in_a_process_of_its_own(scenario: Callable[[Cores], None]) -> None:
    """Runs a scenario with all cores of the machine, where no engine of another test has bound its threads."""

    def run() -> None:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        scenario(set(os.sched_getaffinity(0)))

    process = get_context("fork").Process(target=run)
    process.start()
    process.join(60)
    assert process.exitcode == 0


@contextmanager
def bound_threads(*cores: Cores) -> Iterator[None]:
    """Threads that do nothing, each on its cores."""
    done, ready = threading.Event(), threading.Barrier(len(cores) + 1)

    def wait(mine: Cores) -> None:
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


def leaves_what_is_taken(which: Callable[[Cores], int], allowed: Cores) -> None:
    taken = which(allowed)
    with bound_threads({taken}):
        with caller_apart():
            assert os.sched_getaffinity(0) == {min(allowed - {taken}, default=taken)}
        assert os.sched_getaffinity(0) == allowed


def is_not_driven_away_by_what_may_move(allowed: Cores) -> None:
    with bound_threads(allowed), caller_apart():
        assert os.sched_getaffinity(0) == {min(allowed)}


def stays_where_every_core_is_taken(allowed: Cores) -> None:
    with bound_threads(*({core} for core in allowed)), caller_apart():
        assert os.sched_getaffinity(0) == allowed


def comes_back_after_an_error(allowed: Cores) -> None:
    with suppress(ZeroDivisionError), caller_apart():
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(partial(leaves_what_is_taken, min), id="the first core is taken"),
        pytest.param(partial(leaves_what_is_taken, max), id="the last core is taken"),
        is_not_driven_away_by_what_may_move,
        stays_where_every_core_is_taken,
        comes_back_after_an_error,
    ],
)
def test_the_caller_has_a_core_of_its_own(scenario: Callable[[Cores], None]) -> None:
    in_a_process_of_its_own(scenario)
