"""Measuring on a simulator: exact, in order, lazy, and without locking a device."""

from __future__ import annotations

import os
from typing import Any

import pytest

from anole.host.lock import lock_device
from anole.measure.fault_filter import FaultFilteringMeasurer, make_measurer
from anole.measure.measurer import SimulatedMeasurer
from anole.measure.options import MeasureOptions
from anole.record import Status
from anole.search.evaluators.fixed import Fixed
from anole.targets.cpu.settings import describe_cpu
from anole.task import Conv2d, Task
from anole_vta.settings import describe_vta
from anole_vta.target import VtaTarget

WORKLOAD = Conv2d(1, 8, 8, 16, 16, (3, 3), padding=(1, 1, 1, 1))
TARGET = VtaTarget(describe_vta())
TASK = Task(WORKLOAD, TARGET.description, 1)
ONCE = MeasureOptions(Fixed())


def configs() -> list[Any]:
    space = TARGET.space(WORKLOAD)
    return [space.config(vector) for vector in space.vectors(space.valid_indices)]


def test_the_kind_of_target_selects_the_measurer() -> None:
    assert isinstance(make_measurer(TASK, ONCE), SimulatedMeasurer)
    assert isinstance(make_measurer(Task(WORKLOAD, describe_cpu(threads=1), 1), ONCE), FaultFilteringMeasurer)


def test_latencies_are_exact_and_in_order() -> None:
    with make_measurer(TASK, ONCE) as measurer:
        measured = list(measurer.measure(configs()))
        again = list(measurer.measure(configs()))
    assert len(measured) == len(configs()) > 4
    for config, first, second in zip(configs(), measured, again, strict=True):
        assert (first.status, first.error) == (Status.OK, None)
        assert first.latency_s == second.latency_s == TARGET.cycles(WORKLOAD, config) / 100e6
        assert (first.latency_std_s, first.cv, first.repeats) == (0.0, 0.0, 1)
        assert first.run_s is not None and 0 < first.run_s < 10


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tile_h": 3}, "tile_h 3 does not divide 8"),
        ({"tile_h": 8, "h_threading": 2}, "thread split"),
        ({"tile_ci": 128, "tile_co": 128}, "at most 4096 are allowed"),
    ],
)
def test_invalid_configs_are_rejected_with_a_reason(change: dict[str, int], reason: str) -> None:
    good = TARGET.default_config(WORKLOAD)
    first, bad, last = SimulatedMeasurer(TASK, TARGET).measure([good, {**good, **change}, good])
    assert (bad.status, bad.latency_s) == (Status.REJECTED, None) and reason in str(bad.error)
    assert first.latency_s == last.latency_s is not None


def test_candidates_are_simulated_lazily() -> None:
    simulated: list[Any] = []

    class Watched(VtaTarget):
        def simulate(self, workload: Any, config: Any) -> float:
            simulated.append(config)
            return super().simulate(workload, config)

    two = configs()[:2]
    measuring = iter(SimulatedMeasurer(TASK, Watched(TARGET.description)).measure(two))
    assert simulated == []
    next(measuring)
    assert simulated == two[:1]


def test_a_simulation_needs_neither_the_device_nor_another_process() -> None:
    before = os.listdir("/proc/self/task")
    with lock_device("vta"), lock_device("cpu"), make_measurer(TASK, ONCE) as measurer:
        assert next(iter(measurer.measure(configs()))).latency_s
        assert len(os.listdir("/proc/self/task")) == len(before)
