"""Measures candidates of one task: builds them in parallel and runs one on each device, in separate processes."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from anole.errors import MachineError, cause
from anole.host.machine import available_cores
from anole.measure.artifacts import Artifacts
from anole.measure.bench import Bench, Runs
from anole.measure.builders import Builders, Built
from anole.measure.jobs import start_building
from anole.measure.judge import FAILURES, Judge
from anole.measure.limits import Limits, Patience
from anole.measure.overlap import Overlap
from anole.measure.servers import Servers
from anole.measure.site import Elsewhere, Site, site_of
from anole.record import Config, Measurement
from anole.search.roles import Evaluator
from anole.targets import get_device
from anole.targets.base import Device
from anole.task import Task

logger = logging.getLogger(__name__)


class Measurer:
    """Measures candidates of one task on its target.

    Args:
        task: the task.
        evaluator: decides how often a kernel is run.
        target: builds and runs the candidates; the task's target when None.
        site: where candidates run, entered and left by the caller; an own site on this machine when None.
        n_builders: how many candidates are built at once.
        limits: the limits of a candidate.
        patience: how long to wait for remote devices while there is none.
        best_s: the least latency measured before, in seconds; None if there is none.

    Raises:
        TargetError: the target's kind is unknown.
    """

    def __init__(
        self,
        task: Task,
        evaluator: Evaluator,
        *,
        target: Device | None = None,
        site: Site | None = None,
        n_builders: int | None = None,
        limits: Limits | None = None,
        patience: Patience | None = None,
        best_s: float | None = None,
    ) -> None:
        self._workload, self._limits = task.workload, limits or Limits()
        self._target = target or get_device(task.target)
        self._site, self._is_own_site = site or site_of(self._target), site is None
        self._n_builders = n_builders or _default_builders(self._site, self._target)
        self._evaluator, self._patience = evaluator, patience or Patience()
        self._artifacts = Artifacts()
        self._bench = self._runs(Judge(self._target.max_relative_error, best_s, self._artifacts))

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
            pool = Builders(self._n_builders, building, self._target.preload, self._limits.build_s, folder)
            self._builders = stack.enter_context(pool)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, configs: Sequence[Config]) -> Generator[Measurement]:
        """Measures configs and yields their measurements in order, each as soon as it is known.

        Raises:
            TargetError: there is no such device.
            MeasureError: measuring is not possible at all, or no longer.
        """
        if self._site.is_disturbed:
            yield from self._measure_by_turns(configs)
            return
        with self._bench.held(len(configs)):
            yield from Overlap(self._builders, self._bench, configs)
            self._bench.compare_devices(self._artifacts.fastest)

    def confirm(self, configs: Sequence[Config], seconds_each: float = 0.1) -> list[Measurement]:
        """Measures rivals together, in turns, so that the machine's state affects all of them alike.

        Args:
            configs: a few configs.
            seconds_each: wall-clock seconds for each config at most.

        Returns:
            Their measurements, in order; each latency is the median over all turns.

        Raises:
            TargetError: there is no such device.
            MeasureError: measuring is not possible at all, or no longer.
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
        """Returns a measurer of another task for the same target, at the same site; enter it while this one is idle."""
        return Measurer(
            task,
            self._evaluator,
            target=self._target,
            site=self._site,
            n_builders=1,
            limits=self._limits,
            patience=self._patience,
        )

    def _runs(self, judge: Judge) -> Runs:
        site, target = self._site, self._target
        if not isinstance(site, Elsewhere):
            return Bench(site, target, self._workload, self._evaluator, self._limits, judge)
        return Servers(site, target, self._workload, self._evaluator, self._limits, self._patience, judge)

    def _measure_by_turns(self, configs: Sequence[Config]) -> Generator[Measurement]:
        """Alternates between building and timing, which never overlap."""
        # A few at a time, so that an interruption loses few builds.
        few = 8 * self._n_builders
        for first in range(0, len(configs), few):
            built = self._build_all(configs[first : first + few])
            with self._bench.held(1):
                for candidate in built:
                    yield self._bench.run_each([candidate])[0]

    def _rebuilt(self, configs: Sequence[Config]) -> list[Built]:
        """Returns the kept builds of candidates, and builds the others."""
        kept = [self._artifacts.find(config) for config in configs]
        others = iter(self._build_all([config for config, built in zip(configs, kept, strict=True) if built is None]))
        return [built or next(others) for built in kept]

    def _build_all(self, configs: Sequence[Config]) -> list[Built]:
        with self._site.building():
            return self._builders.build_all(configs)


def _default_builders(site: Site, target: Device) -> int:
    """Returns how many candidates are built at once: one per kernel thread if builds disturb timing, else per core."""
    return target.threads if site.is_disturbed else available_cores()
