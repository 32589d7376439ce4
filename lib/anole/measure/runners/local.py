"""Run candidates on a local device, one after another or interleaved."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

from anole.host.process import CallFailed, CallTimedOut, Worker
from anole.measure.builders import Built
from anole.measure.device_access import DeviceAccess
from anole.measure.options import MeasureOptions
from anole.measure.results import FAILURES, Results
from anole.measure.worker_functions import make_run_function
from anole.record import Measurement
from anole.targets.base import Device
from anole.task import Workload


class LocalRunner:
    """A runner of a workload's candidates in one worker, which is replaced if it dies.

    A context manager that ends the worker.
    """

    n_workers = 1

    def __init__(
        self, access: DeviceAccess, target: Device, workload: Workload, options: MeasureOptions, results: Results
    ) -> None:
        self._access, self._target = access, target
        self._run_limit_s, self._results = options.limits.run_s, results
        self._start = partial(make_run_function, target, workload, options.evaluator)
        self._launched_worker: Worker | None = None
        self._candidate: Built | None = None
        self._submitted_s = self._limit_s = 0.0

    def __enter__(self) -> Self:
        if self._access.is_disturbed:
            self._worker.launch()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @contextmanager
    def hold_devices(self, n: int) -> Iterator[None]:
        """Hold the device exclusively."""
        with self._access.timing():
            self._worker.launch()
            yield

    @property
    def has_room(self) -> bool:
        """Whether a candidate can begin, because none is running."""
        return self._candidate is None

    @property
    def connections(self) -> list[Any]:
        """The worker's connection while a candidate runs; it becomes readable when the run ends."""
        return [] if self.has_room else [self._worker.connection]

    @property
    def left_s(self) -> float:
        """Seconds until the candidate reaches its limit; infinite if none is running."""
        return math.inf if self.has_room else max(0.0, self._limit_s - self._spent_s)

    def begin(self, candidate: Built) -> None:
        """Start running a built candidate."""
        self._candidate = candidate
        self._submit([candidate], None, self._run_limit_s)

    def collect(self, readable: Container[Any]) -> list[tuple[int, Measurement]]:
        """Return the candidate's position and measurement, if it has ended or has exceeded its limit.

        Raises:
            MeasureError: the machine cannot measure, or no longer can.
            TargetError: there is no such device.
        """
        candidate = self._candidate
        if candidate is None or (self.left_s > 0 and not any(source in readable for source in self.connections)):
            return []
        return [(candidate.position, self._finish(candidate))]

    def run_each(self, candidates: Sequence[Built]) -> list[Measurement]:
        """Run candidates one after another and return their measurements; raise as `collect` does."""
        return [candidate.failure or self._run(candidate) for candidate in candidates]

    def compare(self, candidates: Sequence[Built], seconds: float) -> list[Measurement]:
        """Time candidates interleaved; raise as `collect`, and CallError or DeviceLostError if this is impossible."""
        built = [candidate for candidate in candidates if candidate.failure is None]
        self._submit(built, seconds, seconds + self._run_limit_s * max(1, len(built)))
        return self._results.interleaved_measurements(candidates, self._result(), self._spent_s)

    def abandon(self) -> None:
        """Kill the running candidate."""
        if not self.has_room:
            self._end()
        self._candidate = None

    def compare_devices(self, candidate: Built | None) -> None:
        """Do nothing, because there is only one device."""

    def _run(self, candidate: Built) -> Measurement:
        self.begin(candidate)
        return self._finish(candidate)

    def _finish(self, candidate: Built) -> Measurement:
        self._candidate = None
        outcome: Any
        try:
            outcome = self._result()
        except FAILURES as error:
            outcome = error
        return self._results.of_one(candidate, outcome, self._spent_s)

    def _submit(self, candidates: Sequence[Built], seconds: float | None, limit_s: float) -> None:
        self._limit_s = limit_s
        self._worker.submit([candidate.loadable for candidate in candidates], self._results.best_s, seconds)
        self._submitted_s = time.perf_counter()

    def _result(self) -> Any:
        try:
            return self._worker.result(max(0.0, self._limit_s - self._spent_s))
        except (CallFailed, CallTimedOut):
            # A kernel can damage the GPU context for the rest of the process.
            if not self._access.is_disturbed:
                self._end()
            raise

    def _end(self) -> None:
        if self._launched_worker is not None:
            self._launched_worker.end()

    @property
    def _spent_s(self) -> float:
        return time.perf_counter() - self._submitted_s

    @property
    def _worker(self) -> Worker:
        if self._launched_worker is None:
            environment = {**self._target.environment(), **self._access.environment()}
            self._launched_worker = Worker(self._start, preload=self._target.preload, environment=environment)
        return self._launched_worker
