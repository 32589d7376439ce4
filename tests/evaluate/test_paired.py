"""Two engines are timed in one process, and every round has a new one."""

from __future__ import annotations

import os
import time
from functools import partial

import numpy as np
import pytest

from anole.errors import BuildError
from anole.evaluate.engines import Engine
from anole.evaluate.paired import PairTimer


def timer_of(*runs: object) -> PairTimer:
    first, second = (partial(Engine, "engine", run, list) for run in runs)
    return PairTimer((first, second), [], {"WHO": "tester"}, "a and b")


def test_a_round_finds_the_ratio_of_latencies() -> None:
    found = timer_of(partial(time.sleep, 0.002), partial(time.sleep, 0.004)).take()
    assert 1.5 < found.latencies_s[1] / found.latencies_s[0] == pytest.approx(np.exp(found.log_ratio))
    assert 0.002 <= found.latencies_s[0] < 0.004 < found.latencies_s[1] and 0 < found.undisturbed <= 1


def test_short_runs_are_timed_several_at_once() -> None:
    found = timer_of(partial(np.arange, 3), partial(np.arange, 3)).take()
    assert all(1e-8 < latency_s < 1e-4 for latency_s in found.latencies_s)


def test_every_round_has_a_process_of_its_own_with_the_environment() -> None:
    timer = timer_of(partial(np.arange, 3), partial(np.arange, 3))
    first, second = (timer._call(_told) for _ in range(2))
    assert len({first[0], second[0], os.getpid()}) == 3 and first[1] == second[1] == "tester"


def _told(*_: object) -> tuple[int, str]:
    return os.getpid(), os.environ["WHO"]


def test_an_engine_that_fails_or_ends_is_told() -> None:
    with pytest.raises(BuildError, match=r"^a and b: cannot be compared: .*arange"):
        timer_of(partial(np.arange, 3), partial(np.arange, "three")).take()
    with pytest.raises(BuildError, match=r"^a and b: cannot be compared: .*exited with 7"):
        timer_of(partial(np.arange, 3), partial(os._exit, 7)).take()
