"""Runs candidates on a device of this machine, one at a time or against each other."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol, Self

from anole.measure.builders import Built
from anole.measure.device_process import DeviceProcess
from anole.measure.jobs import start_running
from anole.measure.judge import FAILURES, Judge
from anole.measure.limits import Limits
from anole.measure.site import Site
from anole.record import Measurement
from anole.search.roles import Evaluator
from anole.targets.base import Device
from anole.task import Workload


class Runs(Protocol):
    """What runs built candidates: one device of this machine, or servers; a context manager that ends its processes."""

    def __enter__(self) -> Self:
        """Returns itself."""

    def __exit__(self, *_: object) -> None:
        """Ends all processes."""

    def held(self, n: int) -> AbstractContextManager[None]:
        """Holds devices while candidates run, no more than `n` calls can use."""

    @property
    def n_lanes(self) -> int:
        """How many candidates run at once at most."""

    @property
    def has_room(self) -> bool:
        """Whether another candidate can begin."""

    @property
    def connections(self) -> list[Any]:
        """What becomes readable when something has ended."""

    @property
    def left_s(self) -> float:
        """Seconds after which there is something to collect in any case; infinite if there never is."""

    def begin(self, candidate: Built) -> None:
        """Starts running a built candidate, for which there must be room."""

    def collect(self, readable: Container[Any]) -> list[tuple[int, Measurement]]:
        """Returns positions and measurements of the candidates that have ended, given the readable connections.

        Raises:
            MeasureError: measuring is not possible at all, or no longer.
            TargetError: there is no such device.
        """

    def run_each(self, candidates: Sequence[Built]) -> list[Measurement]:
        """Runs candidates one after another on one device and returns their measurements; raises as `collect`."""

    def compare(self, candidates: Sequence[Built], seconds: float) -> list[Measurement]:
        """Runs rivals in turns on one device for some seconds and returns their measurements, in order.

        Raises:
            CallError, DeviceLostError: they cannot be run together.
            MeasureError: measuring is not possible at all, or no longer.
            TargetError: there is no such device.
        """

    def abandon(self) -> None:
        """Abandons what runs."""

    def compare_devices(self, candidate: Built | None) -> None:
        """Finds out whether the devices are alike, by a candidate that worked, if there are several."""


class Bench:
    """Runs candidates of a workload in a process of its own; see `Runs`.

    Args:
        site: the place where they run.
        target: the target that runs them.
        workload: the workload of the candidates.
        evaluator: decides how often a kernel is run.
        limits: time limits of a candidate.
        judge: judges the candidates.
    """

    n_lanes = 1

    def __init__(
        self, site: Site, target: Device, workload: Workload, evaluator: Evaluator, limits: Limits, judge: Judge
    ) -> None:
        self._limits, self._judge = limits, judge
        start = partial(start_running, target, workload, evaluator, target.max_relative_error)
        self._process = DeviceProcess(site, target, start)
        self._candidate: Built | None = None

    def __enter__(self) -> Self:
        self._process.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()

    def held(self, n: int) -> AbstractContextManager[None]:
        """Holds the device exclusively."""
        return self._process.held()

    @property
    def has_room(self) -> bool:
        """Whether no candidate runs."""
        return self._candidate is None

    @property
    def connections(self) -> list[Any]:
        """The connection that becomes readable when the candidate has run."""
        return [] if self.has_room else self._process.connections

    @property
    def left_s(self) -> float:
        """Seconds until the candidate's limit; infinite if none runs."""
        return math.inf if self.has_room else self._process.left_s

    def begin(self, candidate: Built) -> None:
        """Starts running a built candidate."""
        self._candidate = candidate
        self._submit([candidate], None, self._limits.run_s)

    def collect(self, readable: Container[Any]) -> list[tuple[int, Measurement]]:
        """Returns the position and the measurement of the candidate, if it has ended or has passed its limit."""
        candidate = self._candidate
        if candidate is None or (self.left_s > 0 and not any(each in readable for each in self.connections)):
            return []
        return [(candidate.position, self._finish(candidate))]

    def run_each(self, candidates: Sequence[Built]) -> list[Measurement]:
        """Runs candidates one after another and returns their measurements."""
        return [candidate.failure or self._run(candidate) for candidate in candidates]

    def compare(self, candidates: Sequence[Built], seconds: float) -> list[Measurement]:
        """Runs rivals in turns for some seconds and returns their measurements, in order; raises as `Runs.compare`."""
        able = [candidate for candidate in candidates if candidate.failure is None]
        self._submit(able, seconds, seconds + self._limits.run_s * max(1, len(able)))
        return self._judge.comparison(candidates, self._process.result(), self._process.spent_s)

    def abandon(self) -> None:
        """Abandons the running candidate."""
        if not self.has_room:
            self._process.end()
        self._candidate = None

    def compare_devices(self, candidate: Built | None) -> None:
        """Does nothing: there is one device."""

    def _run(self, candidate: Built) -> Measurement:
        self.begin(candidate)
        return self._finish(candidate)

    def _finish(self, candidate: Built) -> Measurement:
        self._candidate = None
        outcome: Any
        try:
            outcome = self._process.result()
        except FAILURES as error:
            outcome = error
        return self._judge.trial(candidate, outcome, self._process.spent_s)

    def _submit(self, candidates: Sequence[Built], seconds: float | None, limit_s: float) -> None:
        artifacts = [(str(candidate.artifact), dict(candidate.config)) for candidate in candidates]
        self._process.submit(artifacts, self._judge.best_s, seconds, timeout_s=limit_s)
