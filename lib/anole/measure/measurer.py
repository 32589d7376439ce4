"""Measures candidates of one task: builds them in parallel and runs one on each device, in separate processes."""

from __future__ import annotations

import logging
import tempfile
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path

from anole.errors import MachineError, cause
from anole.host.machine import available_cores
from anole.measure.builders import Builders, Built
from anole.measure.device_access import DeviceAccess, RemoteDevices, device_access
from anole.measure.local_runner import LocalRunner
from anole.measure.options import MeasureOptions
from anole.measure.remote_runner import RemoteRunner
from anole.measure.results import FAILURES, Results
from anole.measure.worker_functions import start_building
from anole.record import Config, Measurement
from anole.targets import get_device
from anole.targets.base import Device
from anole.task import Task

logger = logging.getLogger(__name__)

CandidateRunner = LocalRunner | RemoteRunner
"""What runs candidates, by where that is."""

_AHEAD = 2
_LONGEST_WAIT_S = 60.0


class Measurer:
    """Measures candidates of one task on its target.

    Args:
        site: where candidates run, entered and left by the caller; an own site on this machine when None.
        target: builds and runs the candidates; the task's target when None.
        best_s: the least latency measured before, in seconds.
    """

    def __init__(
        self,
        task: Task,
        options: MeasureOptions,
        *,
        site: DeviceAccess | None = None,
        target: Device | None = None,
        best_s: float | None = None,
    ) -> None:
        self._workload, self._options = task.workload, options
        self._target = target or get_device(task.target)
        self._site, self._is_own_site = site or device_access(self._target), site is None
        # One for each kernel thread if builds disturb timing, else one for each core.
        usual = self._target.threads if self._site.is_disturbed else available_cores()
        self._n_builders = options.n_builders or usual
        self._results = Results(self._target.max_relative_error, best_s)
        self._bench = self._bench_of(self._site)

    def __enter__(self) -> Measurer:
        with ExitStack() as stack:
            try:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anole-")))
            except OSError as error:
                raise MachineError(f"no folder for candidates can be made: {cause(error)}") from error
            if self._is_own_site:
                stack.enter_context(self._site)
            stack.enter_context(self._bench)
            building = partial(start_building, self._target, self._workload)
            pool = Builders(self._n_builders, building, self._target.preload, self._options.limits.build_s, folder)
            self._builders = stack.enter_context(pool)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, configs: Sequence[Config]) -> Generator[Measurement]:
        """Measure configs and yield their measurements in order, each as soon as it is known.

        Raises:
            TargetError: there is no such device.
            MeasureError: measuring is not possible at all, or no longer.
        """
        if self._site.is_disturbed:
            yield from self._measure_by_turns(configs)
            return
        with self._bench.held(len(configs)):
            yield from Overlap(self._builders, self._bench, configs)
            self._bench.compare_devices(self._results.fastest)

    def confirm(self, configs: Sequence[Config], seconds_each: float = 0.1) -> list[Measurement]:
        """Measure rivals together, in turns, so that the machine's state affects all of them alike.

        Each has `seconds_each` at most, and its latency is the median over all turns; raises as `measure`.
        """
        built = self._rebuilt(configs)
        able = sum(candidate.failure is None for candidate in built)
        with self._bench.held(1):
            try:
                return self._bench.compare(built, seconds_each * able)
            except FAILURES:
                logger.warning("the rivals could not be run together; each is measured on its own")
                return self._bench.run_each(built)

    def beside(self, task: Task) -> Measurer:
        """Return a measurer of another task for the same target, at the same site; enter it while this one is idle."""
        return Measurer(task, replace(self._options, n_builders=1), site=self._site, target=self._target)

    def _bench_of(self, site: DeviceAccess) -> CandidateRunner:
        if isinstance(site, RemoteDevices):
            return RemoteRunner(site, self._target, self._workload, self._options, self._results)
        return LocalRunner(site, self._target, self._workload, self._options, self._results)

    def _measure_by_turns(self, configs: Sequence[Config]) -> Generator[Measurement]:
        """Alternate between building and timing, which never overlap."""
        # A few at a time, so that an interruption loses few builds.
        few = 8 * self._n_builders
        for first in range(0, len(configs), few):
            built = self._build_all(configs[first : first + few])
            with self._bench.held(1):
                for candidate in built:
                    yield self._bench.run_each([candidate])[0]

    def _rebuilt(self, configs: Sequence[Config]) -> list[Built]:
        """Return the kept builds of candidates, and build the others."""
        kept = [self._results.find(config) for config in configs]
        others = iter(self._build_all([config for config, built in zip(configs, kept, strict=True) if built is None]))
        return [built or next(others) for built in kept]

    def _build_all(self, configs: Sequence[Config]) -> list[Built]:
        with self._site.building():
            return self._builders.build_all(configs)


class Overlap:
    """Yields the measurements of configs in order, each as soon as it is known; for devices that no build disturbs.

    Candidates run as soon as they are built, so that no device waits while one is ready. At most twice as many
    candidates as there are builders are built ahead of the devices, or more, so that there is one for each device.
    """

    def __init__(self, builders: Builders, bench: CandidateRunner, configs: Sequence[Config]) -> None:
        self._builders, self._bench, self._n = builders, bench, len(configs)
        self._waiting = deque(enumerate(configs))
        self._ready: dict[int, Built] = {}
        self._known: dict[int, Measurement] = {}

    def __iter__(self) -> Iterator[Measurement]:
        try:
            self._feed()
            for position in range(self._n):
                while position not in self._known:
                    self._advance()
                yield self._known.pop(position)
        finally:
            self._builders.abandon()
            self._bench.abandon()

    def _advance(self) -> None:
        """Wait for the first builder or run to end, take its result, and give idle ones new work."""
        left_s = min(self._builders.left_s, self._bench.left_s, _LONGEST_WAIT_S)
        readable = wait([*self._builders.connections, *self._bench.connections], left_s)
        for candidate in self._builders.collect(readable):
            if candidate.failure is None:
                self._ready[candidate.position] = candidate
            else:
                self._known[candidate.position] = candidate.failure
        self._known.update(self._bench.collect(readable))
        self._feed()

    def _feed(self) -> None:
        builders = self._builders
        most = max(_AHEAD * builders.n, builders.n + self._bench.n_workers)
        while self._waiting and builders.n_busy < builders.n and builders.n_busy + len(self._ready) < most:
            builders.begin(*self._waiting.popleft())
        while self._ready and self._bench.has_room:
            self._bench.begin(self._ready.pop(min(self._ready)))
