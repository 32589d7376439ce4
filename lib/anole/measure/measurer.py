"""Measure candidates of one task: on devices, in isolated processes, or deterministically on a simulator.

For devices, candidates are built in parallel and run one per device.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path

from anole.errors import ConfigError, MachineError, cause
from anole.host.machine import available_cores
from anole.measure.builders import Builders, Built
from anole.measure.device_access import DeviceAccess, RemoteDevices, device_access
from anole.measure.options import MeasureOptions
from anole.measure.results import FAILURES, Results
from anole.measure.runners.local import LocalRunner
from anole.measure.runners.remote import RemoteRunner
from anole.measure.worker_functions import make_build_function
from anole.record import Config, Measurement, Status
from anole.targets import get_device
from anole.targets.base import Device, Simulator
from anole.task import Task

logger = logging.getLogger(__name__)

CandidateRunner = LocalRunner | RemoteRunner
"""A runner of candidates on local or remote devices."""

_MAX_AHEAD_PER_BUILDER = 2
_MAX_WAIT_S = 60.0


class Measurer:
    """A measurer of the candidates of one task on its target.

    Args:
        access: access to the candidates' devices, which the caller enters and leaves; by default a new, local one.
        target: builds and runs the candidates; by default the task's target.
        best_s: minimum latency of earlier measurements.
    """

    def __init__(
        self,
        task: Task,
        options: MeasureOptions,
        *,
        access: DeviceAccess | None = None,
        target: Device | None = None,
        best_s: float | None = None,
    ) -> None:
        self._workload, self._options = task.workload, options
        self._target = target or get_device(task.target)
        self._access, self._owns_access = access or device_access(self._target), access is None
        # One builder per kernel thread if builds disturb timing, otherwise one per core.
        default_n = self._target.threads if self._access.is_disturbed else available_cores()
        self._n_builders = options.n_builders or default_n
        self._results = Results(self._target.max_relative_error, best_s)
        self._runner = self._runner_for(self._access)

    def __enter__(self) -> Measurer:
        with ExitStack() as stack:
            try:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anole-")))
            except OSError as error:
                raise MachineError(f"cannot create a temporary folder for candidates: {cause(error)}") from error
            if self._owns_access:
                stack.enter_context(self._access)
            stack.enter_context(self._runner)
            start = partial(make_build_function, self._target, self._workload)
            pool = Builders(self._n_builders, start, self._target.preload, self._options.limits.build_s, folder)
            self._builders = stack.enter_context(pool)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, configs: Sequence[Config]) -> Generator[Measurement]:
        """Measure configs and yield their measurements in order, each once it and all earlier ones are known.

        Raises:
            TargetError: there is no such device.
            MeasureError: the machine cannot measure, or no longer can.
        """
        if self._access.is_disturbed:
            yield from self._alternate(configs)
            return
        with self._runner.hold_devices(len(configs)):
            yield from Overlap(self._builders, self._runner, configs)
            self._runner.compare_devices(self._results.fastest)

    def confirm(self, configs: Sequence[Config], seconds_each: float = 0.1) -> list[Measurement]:
        """Measure competing configs interleaved, so changes of the machine's state affect all of them equally.

        Each runs about `seconds_each`, in 5 to 100 rounds for a median, or alone if this fails. Raises as `measure`.
        """
        built = self._find_or_build(configs)
        n_built = sum(candidate.failure is None for candidate in built)
        with self._runner.hold_devices(1):
            try:
                return self._runner.compare(built, seconds_each * n_built)
            except FAILURES:
                logger.warning("the best candidates could not run interleaved; measuring each on its own")
                return self._runner.run_each(built)

    def for_task(self, task: Task) -> Measurer:
        """Return a measurer of another task on the same devices; enter it while this one is idle."""
        return Measurer(task, replace(self._options, n_builders=1), access=self._access, target=self._target)

    def _runner_for(self, access: DeviceAccess) -> CandidateRunner:
        if isinstance(access, RemoteDevices):
            return RemoteRunner(access, self._target, self._workload, self._options, self._results)
        return LocalRunner(access, self._target, self._workload, self._options, self._results)

    def _alternate(self, configs: Sequence[Config]) -> Generator[Measurement]:
        """Alternate between building and timing, which never overlap."""
        # Small chunks, so an interruption loses few builds.
        chunk_size = 8 * self._n_builders
        for first in range(0, len(configs), chunk_size):
            built = self._build_all(configs[first : first + chunk_size])
            with self._runner.hold_devices(1):
                for candidate in built:
                    yield self._runner.run_each([candidate])[0]

    def _find_or_build(self, configs: Sequence[Config]) -> list[Built]:
        """Return the candidates of configs, building only those whose artifacts were not kept."""
        stored = [self._results.find(config) for config in configs]
        new = iter(self._build_all([config for config, built in zip(configs, stored, strict=True) if built is None]))
        return [built or next(new) for built in stored]

    def _build_all(self, configs: Sequence[Config]) -> list[Built]:
        with self._access.building():
            return self._builders.build_all(configs)


class Overlap:
    """Overlapped building and running, for devices that builds do not disturb; iterates over measurements in order.

    Candidates run as soon as they are built, so no device idles while a candidate is ready. At most two candidates per
    builder are built ahead, or more if that is needed to keep all devices busy.
    """

    def __init__(self, builders: Builders, runner: CandidateRunner, configs: Sequence[Config]) -> None:
        self._builders, self._runner, self._n = builders, runner, len(configs)
        self._waiting = deque(enumerate(configs))
        self._ready: dict[int, Built] = {}
        self._measurements: dict[int, Measurement] = {}

    def __iter__(self) -> Iterator[Measurement]:
        try:
            self._start_work()
            for position in range(self._n):
                while position not in self._measurements:
                    self._advance()
                yield self._measurements.pop(position)
        finally:
            self._builders.abandon()
            self._runner.abandon()

    def _advance(self) -> None:
        """Wait until a build or a run ends, collect the results, and start new work."""
        left_s = min(self._builders.left_s, self._runner.left_s, _MAX_WAIT_S)
        readable = wait([*self._builders.connections, *self._runner.connections], left_s)
        for candidate in self._builders.collect(readable):
            if candidate.failure is None:
                self._ready[candidate.position] = candidate
            else:
                self._measurements[candidate.position] = candidate.failure
        self._measurements.update(self._runner.collect(readable))
        self._start_work()

    def _start_work(self) -> None:
        builders = self._builders
        max_ahead = max(_MAX_AHEAD_PER_BUILDER * builders.n, builders.n + self._runner.n_workers)
        while self._waiting and builders.n_busy < builders.n and builders.n_busy + len(self._ready) < max_ahead:
            builders.begin(*self._waiting.popleft())
        while self._ready and self._runner.has_room:
            self._runner.begin(self._ready.pop(min(self._ready)))


class SimulatedMeasurer(AbstractContextManager["SimulatedMeasurer"]):
    """A measurer of the candidates of one task on a simulator."""

    def __init__(self, task: Task, target: Simulator) -> None:
        self._workload, self._target = task.workload, target

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
