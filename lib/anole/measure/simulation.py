"""Measure candidates of one task on a simulator, deterministically and in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Self

from anole.errors import ConfigError
from anole.record import Config, Measurement, Status
from anole.targets.base import Simulator
from anole.task import Task


class SimulatedMeasurer:
    """A measurer of the candidates of one task on a simulator."""

    def __init__(self, task: Task, target: Simulator) -> None:
        self._workload, self._target = task.workload, target

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Measure configs lazily and yield their measurements in order."""
        return map(self._measure, configs)

    def _measure(self, config: Config) -> Measurement:
        began_s = time.perf_counter()
        try:
            latency_s = self._target.simulate(self._workload, config)
        except ConfigError as error:
            return Measurement(Status.REJECTED, str(error), run_s=time.perf_counter() - began_s)
        run_s = time.perf_counter() - began_s
        return Measurement(Status.OK, None, latency_s, latency_std_s=0.0, cv=0.0, repeats=1, run_s=run_s)
