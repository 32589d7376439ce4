"""Measuring on the real CPU: successes, and every way in which a candidate can fail."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.machine import describe_cpu
from anole.measure import Limits, Measurer
from anole.measure.evaluator import Fixed
from anole.record import Config, Status
from anole.targets import TARGETS, get_target
from anole.targets.base import Timeable
from anole.targets.cpu.target import CpuTarget
from anole.task import Conv2d, Task, Workload

WORKLOAD = Conv2d(1, 8, 8, 8, 16, (3, 3), padding=(1, 1, 1, 1))


class TroubledCpu(CpuTarget):
    """The real CPU, but for candidates whose config asks for trouble."""

    def build(self, workload: Workload, config: Config, artifact: Path) -> None:
        match config.get("trouble"):
            case "build error":
                raise ValueError("no such schedule")
            case "build crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "build hang":
                time.sleep(600)
        super().build(workload, _without_trouble(config), artifact)

    def runner(self, workload: Workload) -> Any:
        return _TroubledRunner(super().runner(workload))


class _TroubledRunner:
    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def load(self, artifact: Path, config: Config) -> Timeable:
        match config.get("trouble"):
            case "run crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "run hang":
                time.sleep(600)
            case "wrong":
                self._runner._example.expected[...] += 1.0
        return self._runner.load(artifact, _without_trouble(config))


def _without_trouble(config: Mapping[str, Any]) -> Config:
    return {name: value for name, value in config.items() if name != "trouble"}


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(WORKLOAD, describe_cpu(), 1)


@pytest.fixture(scope="module")
def configs(task: Task) -> list[dict[str, Any]]:
    space = get_target(task.target).space(task.workload)
    return [space.config(vector) for vector in space.sample(4, np.random.default_rng(0))]


@pytest.fixture
def troubled(task: Task, monkeypatch: pytest.MonkeyPatch) -> Iterator[Measurer]:
    # Workers are forked from a server that never saw this module: what they unpickle must import it.
    monkeypatch.setitem(TARGETS, "cpu", f"{__name__}:TroubledCpu")
    with Measurer(task, Fixed(), n_builders=2, limits=Limits(build_s=3.0, run_s=3.0)) as measurer:
        yield measurer


def test_measures_in_order(task: Task, configs: list[dict[str, Any]]) -> None:
    with Measurer(task, Fixed(number=2, repeats=5)) as measurer:
        measured = list(measurer.measure(configs))
        confirmed = measurer.confirm(configs[:2], seconds=0.1)
    assert [measurement.status for measurement in measured] == [Status.OK] * 4
    for measurement in measured:
        assert measurement.latency_s is not None and 0 < measurement.latency_s < 1e-2
        assert measurement.repeats == 5
        assert measurement.build_s > 0 and measurement.run_s > 0
    assert all(confirmation.repeats >= 5 for confirmation in confirmed)


def test_threads_are_those_of_the_target(task: Task) -> None:
    environment = get_target({**task.target, "threads": 3}).environment()
    assert environment["TVM_NUM_THREADS"] == "3"
