"""Timing of two engines in one process, with a new process for every round."""

from __future__ import annotations

import os
import time
from functools import partial
from math import log
from pathlib import Path

import numpy as np
import pytest

from anole.errors import BuildError
from anole.evaluate.engines import Engine
from anole.evaluate.timing.load import run_busy_processes
from anole.evaluate.timing.pairs import PairTimer, WaitMeter, drop_disturbed, latency_s, time_runs


def timer_of(*runs: object) -> PairTimer:
    first, second = (partial(Engine, "engine", run, list) for run in runs)
    return PairTimer((first, second), [], {"WHO": "tester"}, "a and b")


def test_a_round_measures_the_ratio_of_latencies() -> None:
    timer = timer_of(partial(time.sleep, 0.002), partial(time.sleep, 0.004))
    log_ratio, (found,) = timer.take(), timer.rounds
    assert log(1.5) < log_ratio == pytest.approx(log(found.latencies_s[1] / found.latencies_s[0]))
    assert 0.002 <= found.latencies_s[0] < 0.004 < found.latencies_s[1] and 0 < found.undisturbed <= 1


def test_short_runs_are_timed_in_groups() -> None:
    timer = timer_of(partial(np.arange, 3), partial(np.arange, 3))
    timer.take()
    assert all(1e-8 < each_s < 1e-4 for each_s in timer.rounds[0].latencies_s)


def test_every_round_has_a_new_process_with_the_environment() -> None:
    timer = timer_of(partial(np.arange, 3), partial(np.arange, 3))
    first, second = (timer._call(_process_and_variable) for _ in range(2))
    assert len({first[0], second[0], os.getpid()}) == 3 and first[1] == second[1] == "tester"


def _process_and_variable(*_: object) -> tuple[int, str]:
    return os.getpid(), os.environ["WHO"]


def test_a_failing_engine_is_reported() -> None:
    with pytest.raises(BuildError, match=r"^a and b: cannot be compared: .*arange"):
        timer_of(partial(np.arange, 3), partial(np.arange, "three")).take()
    with pytest.raises(BuildError, match=r"^a and b: cannot be compared: .*exited with 7"):
        timer_of(partial(np.arange, 3), partial(os._exit, 7)).take()


def spin() -> None:
    end_s = time.perf_counter() + 0.05
    while time.perf_counter() < end_s:
        pass


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system does not count waiting")
def test_threads_that_share_a_processor_wait_and_sleeping_ones_do_not() -> None:
    before = os.sched_getaffinity(0)
    with WaitMeter() as meter:
        asleep_s = time_runs(lambda: time.sleep(0.05), 1, meter)[1]
        os.sched_setaffinity(0, {min(before)})
        try:
            with run_busy_processes(2):
                runs = [time_runs(spin, 1, meter) for _ in range(6)]
        finally:
            os.sched_setaffinity(0, before)
    assert all(0.05 <= took_s for took_s, _ in runs)
    assert sum(waited_s for _, waited_s in runs) > 0.05 > asleep_s


def test_only_undisturbed_runs_count() -> None:
    runs = [(2.0, 0.0), (2.2, 0.01), (2.4, 0.0), (9.0, 7.0), (1.0, 0.5), (2.6, 0.0)]
    assert list(drop_disturbed(runs)) == [2.0, 2.2, 2.4, 2.6]
    assert latency_s(runs) == pytest.approx(2.2)


@pytest.mark.parametrize(
    ("runs", "found_s"),
    [
        ([(float(number), 0.0) for number in range(1, 101)], 5.5),
        ([(2.0, 1.0), (3.0, 1.0), (4.0, 1.0), (9.0, 1.0)], 3.0),
    ],
    ids=["the fastest tenth of many runs", "all runs if all are disturbed"],
)
def test_the_latency_is_the_mean_of_the_fastest_runs(runs: list[tuple[float, float]], found_s: float) -> None:
    assert latency_s(runs) == pytest.approx(found_s)
