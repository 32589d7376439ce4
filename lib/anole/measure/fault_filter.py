"""Record failures of candidates only after checking that the machine still works."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Self

from anole.errors import MeasureError
from anole.host.faults import ran_out_of_memory
from anole.measure.device_access import DeviceAccess
from anole.measure.measurer import Measurer, SimulatedMeasurer
from anole.measure.options import MeasureOptions
from anole.record import Config, Measurement, Status, Trial
from anole.targets import get_target
from anole.targets.base import Device, DeviceLocation
from anole.task import BatchMatmul, Conv2d, Dense, Task, Workload

logger = logging.getLogger(__name__)

_MAX_HELD_FAILURES = 8
"""Consecutive failures to hold back before checking the machine; doubled after each check until a candidate works."""


def make_measurer(
    task: Task, options: MeasureOptions, access: DeviceAccess | None = None, fastest: Trial | None = None
) -> AnyMeasurer:
    """Return the measurer of a task's candidates; a measurer for a simulator uses only the task.

    `access` is local by default; `fastest` is the fastest earlier trial.
    """
    target = get_target(task.target)
    if target.location is DeviceLocation.SIMULATOR:
        return SimulatedMeasurer(task, target)
    best_s, known = (fastest.measurement.latency_s, fastest.config) if fastest is not None else (None, None)
    return FaultFilteringMeasurer(Measurer(task, options, access=access, best_s=best_s), task, target, known)


class FaultFilteringMeasurer:
    """A measurer that yields failures only after a check that the machine works.

    Failures are held back until a later candidate works. If none does, configs that should work are measured: the
    `known` config, which worked before, then the default config, or a tiny task if neither has ever worked. If one of
    them works, the candidates are at fault. A candidate that ran out of memory is first measured again on its own.

    A context manager that enters and leaves the measurer.
    """

    def __init__(self, measurer: Measurer, task: Task, target: Device, known: Config | None = None) -> None:
        self._measurer, self._task, self._target, self._known = measurer, task, target, known
        self._default_fails = False

    def __enter__(self) -> Self:
        self._measurer.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._measurer.__exit__()

    def measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Measure configs and yield their measurements in order, failures only once they are verified.

        Raises:
            TargetError: there is no such device.
            MeasureError: the machine cannot measure, or no longer can; failures held back are not yielded.
        """
        n, failures, max_failures = 0, list[Measurement](), _MAX_HELD_FAILURES
        while n < len(configs):
            with closing(self._measurer.measure(configs[n:])) as measurements:
                for measurement in measurements:
                    n += 1
                    if ran_out_of_memory(measurement.error):
                        logger.warning("a candidate failed (%s); measuring it again on its own", measurement.error)
                        measurements.close()
                        measurement = self._measure_alone(configs[n - 1])
                    if measurement.status is Status.OK:
                        self._known = configs[n - 1]
                        yield from (*failures, measurement)
                        failures, max_failures = [], _MAX_HELD_FAILURES
                        continue
                    failures.append(measurement)
                    if len(failures) == max_failures or n == len(configs):
                        measurements.close()
                        self._check_machine(failures)
                        yield from failures
                        failures, max_failures = [], 2 * max_failures

    def confirm(self, configs: Sequence[Config], seconds_each: float = 0.1) -> list[Measurement]:
        """Measure competing configs together as `Measurer.confirm` does; raise as `measure` does."""
        measurements = self._measurer.confirm(configs, seconds_each)
        if measurements and all(measurement.status is not Status.OK for measurement in measurements):
            self._check_machine(measurements)
        return measurements

    def _measure_alone(self, config: Config) -> Measurement:
        """Measure a config while nothing else is built or run."""
        (measurement,) = self._measurer.measure([config])
        return measurement

    def _check_machine(self, failures: Sequence[Measurement]) -> None:
        """Measure a config that should work; if it fails, too, the machine is at fault: raise MeasureError."""
        failure: Measurement | None = None
        if self._known is not None:
            failure, subject = self._try_config(self._known), "a config that worked before"
            if failure is None:
                return
        if not self._default_fails:
            default_config = self._target.default_config(self._task.workload)
            default_failure = self._try_config(default_config)
            if default_failure is None:
                self._known = self._known or default_config
                return
            self._default_fails = failure is None
        if failure is None:
            smallest_task = _smallest_task(self._target, self._task.workload.dtype)
            with self._measurer.for_task(smallest_task) as measurer:
                (measurement,) = measurer.measure([self._target.default_config(smallest_task.workload)])
            if measurement.status is Status.OK:
                return
            failure, subject = measurement, f"the smallest task ({smallest_task.label})"
        last = failures[-1]
        raise MeasureError(
            f"{self._task.label}: {len(failures)} candidates in a row failed, the last with {_describe(last)}; "
            f"{subject} fails now too, with {_describe(failure)}; the machine is at fault, and these failures are not "
            "recorded"
        )

    def _try_config(self, config: Config) -> Measurement | None:
        measurement = self._measure_alone(config)
        return None if measurement.status is Status.OK else measurement


AnyMeasurer = FaultFilteringMeasurer | SimulatedMeasurer
"""A measurer for hardware or for a simulator."""


def _smallest_task(target: Device, dtype: str) -> Task:
    """Return a tiny task of the first operator that the target has a template for."""
    workloads: tuple[Workload, ...] = (
        Dense(1, 32, 64, dtype=dtype),
        Conv2d(1, 8, 8, 8, 16, (3, 3), padding=(1, 1, 1, 1), dtype=dtype),
        BatchMatmul(1, 16, 16, 16, dtype=dtype),
    )
    workload = next(workload for workload in workloads if workload.operator in target.operators)
    return Task(workload, target.description, target.template_version(workload))


def _describe(measurement: Measurement) -> str:
    return f"{measurement.status} ({measurement.error})"
