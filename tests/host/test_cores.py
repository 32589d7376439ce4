"""Binding to cores: the calling thread avoids cores of bound threads, and busy threads get one core each."""

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

from anole.host.cores import keep_caller_on_separate_core, spread_busy_threads
from anole.host.machine import affinity

Cores = set[int]


def in_a_fork(scenario: Callable[[Cores], None]) -> None:
    """Run a scenario in a fork with all allowed cores, without threads that engines of other tests have bound."""
    allowed = affinity()

    def run() -> None:
        os.sched_setaffinity(0, allowed)
        scenario(allowed)

    process = get_context("fork").Process(target=run)
    process.start()
    process.join(60)
    assert process.exitcode == 0


@contextmanager
def run_bound_threads(*cores: Cores) -> Iterator[None]:
    """Run idle threads, each bound to some cores."""
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


def avoids_a_taken_core(which: Callable[[Cores], int], allowed: Cores) -> None:
    taken = which(allowed)
    with run_bound_threads({taken}):
        with keep_caller_on_separate_core():
            assert os.sched_getaffinity(0) == {min(allowed - {taken}, default=taken)}
        assert os.sched_getaffinity(0) == allowed


def ignores_threads_that_may_move(allowed: Cores) -> None:
    with run_bound_threads(allowed), keep_caller_on_separate_core():
        assert os.sched_getaffinity(0) == {min(allowed)}


def does_nothing_if_every_core_is_taken(allowed: Cores) -> None:
    with run_bound_threads(*({core} for core in allowed)), keep_caller_on_separate_core():
        assert os.sched_getaffinity(0) == allowed


def restores_the_affinity_after_an_error(allowed: Cores) -> None:
    with suppress(ZeroDivisionError), keep_caller_on_separate_core():
        raise ZeroDivisionError
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(partial(avoids_a_taken_core, min), id="the first core is taken"),
        pytest.param(partial(avoids_a_taken_core, max), id="the last core is taken"),
        ignores_threads_that_may_move,
        does_nothing_if_every_core_is_taken,
        restores_the_affinity_after_an_error,
    ],
)
def test_the_caller_gets_a_separate_core(scenario: Callable[[Cores], None]) -> None:
    in_a_fork(scenario)


def work() -> None:
    """Keep a core busy for some milliseconds without holding the GIL."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000)


def spread_over(workers: ThreadPoolExecutor) -> Cores:
    """Spread the work of a worker and the caller; return the worker's cores."""

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
        with keep_caller_on_separate_core():
            assert os.sched_getaffinity(0) == {min(allowed)}


def leaves_bound_threads_alone(allowed: Cores) -> None:
    with ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, {min(allowed)})) as workers:
        assert spread_over(workers) == {min(allowed)}


def leaves_idle_threads_alone(allowed: Cores) -> None:
    with run_bound_threads(allowed), ThreadPoolExecutor(1) as workers:
        spread_over(workers)
        bound = [os.sched_getaffinity(thread.native_id or 0) for thread in threading.enumerate()]
        assert sorted(map(len, bound)) == [1, len(allowed), len(allowed)]


def leaves_the_caller_the_only_core(allowed: Cores) -> None:
    os.sched_setaffinity(0, {min(allowed)})
    with ThreadPoolExecutor(1) as workers:
        assert spread_over(workers) == {min(allowed)}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is nothing to spread over")
@pytest.mark.parametrize(
    "scenario",
    [
        leaves_the_first_core_to_the_caller,
        leaves_bound_threads_alone,
        leaves_idle_threads_alone,
        leaves_the_caller_the_only_core,
    ],
)
def test_busy_threads_get_one_core_each(scenario: Callable[[Cores], None]) -> None:
    in_a_fork(scenario)
