"""Runs during which a thread waited for a processor are told from others."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from anole.evaluate.neighbours import busy_neighbours
from anole.evaluate.undisturbed import WaitMeter, latency_s, timed, undisturbed


def spin() -> None:
    end_s = time.perf_counter() + 0.05
    while time.perf_counter() < end_s:
        pass


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system does not count waiting")
def test_who_shares_a_processor_waits_and_who_sleeps_does_not() -> None:
    before = os.sched_getaffinity(0)
    with WaitMeter() as meter:
        asleep_s = timed(lambda: time.sleep(0.05), 1, meter)[1]
        os.sched_setaffinity(0, {min(before)})
        try:
            with busy_neighbours(2):
                runs = [timed(spin, 1, meter) for _ in range(6)]
        finally:
            os.sched_setaffinity(0, before)
    assert all(0.05 <= took_s for took_s, _ in runs)
    assert sum(waited_s for _, waited_s in runs) > 0.05 > asleep_s


def test_only_runs_that_nothing_disturbed_count() -> None:
    runs = [(2.0, 0.0), (2.2, 0.01), (2.4, 0.0), (9.0, 7.0), (1.0, 0.5), (2.6, 0.0)]
    assert list(undisturbed(runs)) == [2.0, 2.2, 2.4, 2.6]
    assert latency_s(runs) == pytest.approx(2.2)


def test_of_many_the_fastest_tenth_counts() -> None:
    assert latency_s([(float(number), 0.0) for number in range(1, 101)]) == pytest.approx(5.5)


def test_where_everything_is_disturbed_all_count() -> None:
    assert latency_s([(2.0, 1.0), (3.0, 1.0), (4.0, 1.0), (9.0, 1.0)]) == pytest.approx(3.0)
