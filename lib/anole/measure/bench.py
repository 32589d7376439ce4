"""Runs candidates one at a time, or against each other, and judges them."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Self

from anole.errors import DeviceLostError
from anole.measure.artifacts import Artifacts
from anole.measure.builders import Built
from anole.measure.device_process import DeviceProcess
from anole.measure.jobs import Timed, start_running
from anole.measure.limits import Limits, Patience
from anole.measure.site import Site
from anole.measure.worker import CallFailed, WorkerDied, WorkerTimeout
from anole.record import Measurement, Status
from anole.search.roles import Evaluator
from anole.search.ties import Compared
from anole.targets.base import Device
from anole.task import Workload

FAILURES = (CallFailed, WorkerDied, WorkerTimeout, DeviceLostError)
"""The exceptions of a call that fails through the candidate's own fault."""


class Bench:
    """Runs candidates of a workload; a context manager that ends its process.

    Args:
        site: the place where they run.
        target: the target that runs them.
        workload: the workload of the candidates.
        evaluator: decides how often a kernel is run.
        limits: time limits of a candidate.
        patience: how long to wait for a lost device.
        best_s: least latency measured before, in seconds; None if there is none.
        artifacts: receives the artifacts of the candidates that have run.
    """

    def __init__(
        self,
        site: Site,
        target: Device,
        workload: Workload,
        evaluator: Evaluator,
        limits: Limits,
        patience: Patience,
        best_s: float | None,
        artifacts: Artifacts,
    ) -> None:
        self._site, self._limits, self._best_s, self._artifacts = site, limits, best_s, artifacts
        self._tolerance = target.max_relative_error
        start = partial(start_running, target, workload, evaluator, self._tolerance, site.remote, limits.session_s)
        self._process = DeviceProcess(site, target, start, limits, patience)
        self._candidate: Built | None = None

    def __enter__(self) -> Self:
        self._process.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()

    def held(self) -> AbstractContextManager[None]:
        """Holds the device exclusively."""
        return self._process.held()

    @property
    def is_busy(self) -> bool:
        """Whether a candidate was begun and is not finished."""
        return self._candidate is not None

    @property
    def connections(self) -> list[Connection]:
        """Connections that become readable when the candidate has run."""
        return self._process.connections if self.is_busy else []

    @property
    def left_s(self) -> float:
        """Seconds until the candidate's limit; infinite if none runs."""
        return self._process.left_s if self.is_busy else math.inf

    def begin(self, candidate: Built) -> None:
        """Starts running a built candidate."""
        self._candidate = candidate
        self._submit([candidate], None, self._limits.run_s)

    def has_ended(self, readable: Container[Any]) -> bool:
        """Returns whether a candidate has ended, given the readable connections, or has passed its limit."""
        return self.is_busy and (self.left_s == 0.0 or any(each in readable for each in self.connections))

    def finish(self) -> tuple[int, Measurement]:
        """Waits for the running candidate and returns its position and its measurement.

        Raises:
            MeasureError: the device is lost and does not come back.
        """
        candidate, self._candidate = self._candidate, None
        assert candidate is not None, "no candidate was begun"
        try:
            (timed,) = self._process.result()
        except FAILURES as error:
            status = Status.RUN_TIMEOUT if isinstance(error, WorkerTimeout) else Status.RUN_ERROR
            run_s = self._process.spent_s
            measurement = Measurement(status, str(error), build_s=candidate.build_s, run_s=run_s)
        else:
            measurement = self._judge(candidate, timed, self._process.spent_s)
        self._artifacts.take(candidate, measurement.latency_s)
        return candidate.position, measurement

    def run(self, candidate: Built) -> Measurement:
        """Runs a candidate and returns its measurement; raises the exceptions of `finish`."""
        if candidate.failure is not None:
            return candidate.failure
        self.begin(candidate)
        return self.finish()[1]

    def compare(self, candidates: Sequence[Built], seconds: float) -> list[Measurement]:
        """Runs rivals in turns for some seconds and returns their measurements, in order.

        Raises:
            CallFailed, WorkerDied, WorkerTimeout, DeviceLostError: they cannot be run together.
            MeasureError: the device is lost and does not come back.
        """
        able = [candidate for candidate in candidates if candidate.failure is None]
        if self._site.remote is not None:
            # The session may not have enough time left for all rivals.
            self._process.end()
        began_s = time.perf_counter()
        self._submit(able, seconds, seconds + self._limits.run_s * max(1, len(able)))
        timed = iter(self._process.result())
        run_s = (time.perf_counter() - began_s) / max(1, len(able))
        return [candidate.failure or self._compared(candidate, next(timed), run_s) for candidate in candidates]

    def abandon(self) -> None:
        """Abandons the running candidate."""
        if self.is_busy:
            self._process.end()
        self._candidate = None

    def _submit(self, candidates: Sequence[Built], seconds: float | None, limit_s: float) -> None:
        artifacts = [(str(candidate.artifact), dict(candidate.config)) for candidate in candidates]
        self._process.submit(artifacts, self._best_s, seconds, timeout_s=limit_s)

    def _compared(self, candidate: Built, timed: Timed, run_s: float) -> Compared:
        return Compared(**vars(self._judge(candidate, timed, run_s)), least_ratio=timed.least_ratio)

    def _judge(self, candidate: Built, timed: Timed, run_s: float) -> Measurement:
        error = timed.relative_error if math.isfinite(timed.relative_error) else None
        measured = Measurement(Status.OK, build_s=candidate.build_s, run_s=run_s, relative_error=error)
        if timed.timing is None:
            reason = f"relative error {timed.relative_error:.3g}; at most {self._tolerance:g} is allowed"
            return replace(measured, status=Status.WRONG_ANSWER, error=reason)
        self._best_s = min(timed.timing.latency_s, self._best_s or math.inf)
        return replace(measured, **asdict(timed.timing))
