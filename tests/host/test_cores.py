"""The calling thread has a core that no other thread is bound to, and busy threads have one each."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context

import pytest

from anole.host.cores import caller_apart, spread_busy_threads
from anole.host.machine import affinity

Cores = set[int]


def in_a_process_of_its_own(scenario: Callable[[Cores], None]) -> None:
    """Run a scenario with all cores that may be used, where no engine of another test has bound its threads."""
    allowed = affinity()

    def run() -> None:
        os.sched_setaffinity(0, allowed)
        scenario(allowed)

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


def work() -> None:
    """Keep a core busy, and the interpreter free, for some milliseconds."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000)


def spread_over(workers: ThreadPoolExecutor) -> Cores:
    """Spread what one worker and the caller do; returns the worker's cores."""

    def both() -> None:
        theirs = workers.submit(work)
        work()
        theirs.result()

    spread_busy_threads(both)
    return set(workers.submit(os.sched_getaffinity, 0).result())


def leaves_the_first_core_to_the_caller(allowed: Cores) -> None:
    with ThreadPoolExecutor(1) as workers:
        assert spread_over(workers) == {sorted(allowed)[1]}
        assert os.sched_getaffinity(0) == allowed
        with caller_apart():
            assert os.sched_getaffinity(0) == {min(allowed)}


def leaves_the_bound_where_they_are(allowed: Cores) -> None:
    with ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, {min(allowed)})) as workers:
        assert spread_over(workers) == {min(allowed)}


def leaves_the_idle_alone(allowed: Cores) -> None:
    with bound_threads(allowed), ThreadPoolExecutor(1) as workers:
        spread_over(workers)
        bound = [os.sched_getaffinity(thread.native_id or 0) for thread in threading.enumerate()]
        assert sorted(map(len, bound)) == [1, len(allowed), len(allowed)]


def leaves_the_caller_a_core_where_there_is_one(allowed: Cores) -> None:
    os.sched_setaffinity(0, {min(allowed)})
    with ThreadPoolExecutor(1) as workers:
        assert spread_over(workers) == {min(allowed)}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is nothing to spread over")
@pytest.mark.parametrize(
    "scenario",
    [
        leaves_the_first_core_to_the_caller,
        leaves_the_bound_where_they_are,
        leaves_the_idle_alone,
        leaves_the_caller_a_core_where_there_is_one,
    ],
)
def test_busy_threads_have_a_core_each(scenario: Callable[[Cores], None]) -> None:
    in_a_process_of_its_own(scenario)
