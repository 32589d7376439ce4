"""Measures candidates of one task: built in parallel, run one at a time, each in a process of its own."""

from __future__ import annotations

import logging
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any
from uuid import uuid4

from anole.measure.lock import device_lock
from anole.measure.session import Timed, start_building, start_running
from anole.measure.worker import CallFailed, Worker, WorkerDied, WorkerTimeout
from anole.record import Config, Measurement, Status
from anole.roles import Evaluator
from anole.targets import get_device
from anole.targets.base import Device
from anole.task import Task

logger = logging.getLogger(__name__)

_FAILURES = (CallFailed, WorkerDied, WorkerTimeout)


@dataclass(frozen=True)
class Limits:
    """What a candidate may take, in wall-clock seconds, before its processes are killed.

    Attributes:
        build_s: of building; AutoTVM's ten seconds, doubled because all cores build at once.
        run_s: of loading, checking and timing.
        relative_error: the L2 distance from the reference beyond which an answer is wrong.
    """

    build_s: float = 20.0
    run_s: float = 10.0
    relative_error: float = 1e-4


@dataclass(frozen=True)
class _Building:
    position: int
    builder: Worker
    config: Config
    artifact: Path
    began_s: float


@dataclass(frozen=True)
class _Built:
    config: Config
    artifact: Path
    build_s: float
    failure: Measurement | None = None


class Measurer:
    """Measures candidates of one task on its target.

    Args:
        task: whose candidates are measured.
        evaluator: decides how often a kernel is run.
        target: what builds and runs them; the task's own target unless given.
        n_builders: how many candidates are built at once.
        limits: what a candidate may take.
        best_s: the least latency that was measured before, in seconds; None when nothing was.

    Raises:
        TargetError: the target's kind is unknown.
        MeasureError: the worker processes do not come up.
    """

    def __init__(
        self,
        task: Task,
        evaluator: Evaluator,
        *,
        target: Device | None = None,
        n_builders: int | None = None,
        limits: Limits | None = None,
        best_s: float | None = None,
    ) -> None:
        self._workload, self._limits = task.workload, limits or Limits()
        self._target = target or get_device(task.target)
        self._device = str(task.target["kind"])
        self._n_builders = n_builders or int(task.target.get("threads", 1))
        self._evaluator, self._best_s = evaluator, best_s

    def __enter__(self) -> Measurer:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anole-")))
            preload, environment = self._target.preload, self._target.environment()
            building = partial(start_building, self._target, self._workload)
            running = partial(start_running, self._target, self._workload, self._evaluator, self._limits.relative_error)
            self._runner = stack.enter_context(Worker(running, preload=preload, environment=environment))
            self._builders = [stack.enter_context(Worker(building, preload=preload)) for _ in range(self._n_builders)]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        """Measures configs and yields their measurements in order, each as soon as it is known."""
        # A few at a time, so that an interruption loses little that was built.
        few = 8 * self._n_builders
        for first in range(0, len(configs), few):
            built = self._build_all(configs[first : first + few])
            with device_lock(self._device):
                for candidate in built:
                    yield candidate.failure or self._run(candidate)
                    candidate.artifact.unlink(missing_ok=True)

    def confirm(self, configs: Sequence[Config], seconds_each: float = 0.2) -> list[Measurement]:
        """Measures rivals together, in turns, so that all meet the same state of the machine.

        Args:
            configs: a handful.
            seconds_each: wall clock to spend on each of them.

        Returns:
            Their measurements, in order; each latency is the median over all turns.
        """
        built = self._build_all(configs)
        able = [candidate for candidate in built if candidate.failure is None]
        seconds, began_s = seconds_each * len(able), time.perf_counter()
        with device_lock(self._device):
            try:
                outcomes: list[Timed] = self._runner.call(
                    [(str(candidate.artifact), dict(candidate.config)) for candidate in able],
                    self._best_s,
                    seconds,
                    timeout_s=seconds + self._limits.run_s * max(1, len(able)),
                )
            except _FAILURES:
                logger.warning("the rivals could not be run together; each is measured on its own")
                return [candidate.failure or self._run(candidate) for candidate in built]
        run_s = (time.perf_counter() - began_s) / max(1, len(able))
        timed = iter(outcomes)
        return [candidate.failure or self._judge(candidate, next(timed), run_s) for candidate in built]

    def _build_all(self, configs: Sequence[Config]) -> list[_Built]:
        """Builds configs on all builders at once and returns them in order."""
        waiting = list(enumerate(configs))[::-1]
        idle, busy = list(self._builders), dict[Any, _Building]()
        built: dict[int, _Built] = {}
        with device_lock(self._device, shared=True) if self._target.shares_cores else nullcontext():
            while waiting or busy:
                while waiting and idle:
                    begun = self._begin_build(idle.pop(), *waiting.pop())
                    busy[begun.builder.connection] = begun
                oldest = min(busy.values(), key=lambda building: building.began_s)
                left_s = oldest.began_s + self._limits.build_s - time.perf_counter()
                for connection in wait(list(busy), max(0.0, left_s)) or [oldest.builder.connection]:
                    ended = busy.pop(connection)
                    built[ended.position] = self._finish_build(ended)
                    idle.append(ended.builder)
        return [built[position] for position in range(len(configs))]

    def _begin_build(self, builder: Worker, position: int, config: Config) -> _Building:
        artifact = self._folder / f"{uuid4().hex}.so"
        builder.submit(dict(config), str(artifact))
        return _Building(position, builder, config, artifact, time.perf_counter())

    def _finish_build(self, building: _Building) -> _Built:
        failure = None
        try:
            building.builder.result(timeout_s=0.0)
        except _FAILURES as error:
            status = Status.BUILD_TIMEOUT if isinstance(error, WorkerTimeout) else Status.BUILD_ERROR
            failure = Measurement(status, str(error), build_s=time.perf_counter() - building.began_s)
        return _Built(building.config, building.artifact, time.perf_counter() - building.began_s, failure)

    def _run(self, candidate: _Built) -> Measurement:
        began_s = time.perf_counter()
        try:
            (timed,) = self._runner.call(
                [(str(candidate.artifact), dict(candidate.config))], self._best_s, timeout_s=self._limits.run_s
            )
        except _FAILURES as error:
            status = Status.RUN_TIMEOUT if isinstance(error, WorkerTimeout) else Status.RUN_ERROR
            run_s = time.perf_counter() - began_s
            return Measurement(status, str(error), build_s=candidate.build_s, run_s=run_s)
        return self._judge(candidate, timed, time.perf_counter() - began_s)

    def _judge(self, candidate: _Built, timed: Timed, run_s: float) -> Measurement:
        measured = Measurement(Status.OK, build_s=candidate.build_s, run_s=run_s)
        if timed.timing is None:
            allowed = self._limits.relative_error
            reason = f"relative error {timed.relative_error:.3g}; at most {allowed:g} is allowed"
            return replace(measured, status=Status.WRONG_ANSWER, error=reason)
        self._best_s = min(timed.timing.latency_s, self._best_s or math.inf)
        return replace(measured, **asdict(timed.timing))
