"""Measures candidates of one task: built in parallel, run one at a time, each in a process of its own."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from uuid import uuid4

from anole.measure.lock import device_lock
from anole.measure.session import Timed, start_building, start_running
from anole.measure.worker import CallFailed, Worker, WorkerDied, WorkerTimeout
from anole.record import Config, Measurement, Status
from anole.roles import Evaluator
from anole.targets import get_target
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
        n_builders: how many candidates are built at once.
        limits: what a candidate may take.

    Raises:
        TargetError: the target's kind is unknown.
        MeasureError: the worker processes do not come up.
    """

    def __init__(
        self, task: Task, evaluator: Evaluator, n_builders: int | None = None, limits: Limits | None = None
    ) -> None:
        self._task, self._limits = task, limits or Limits()
        self._target = get_target(task.target)
        self._device = str(task.target["kind"])
        self._n_builders = n_builders or int(task.target.get("threads", 1))
        self._evaluator = evaluator

    def __enter__(self) -> Measurer:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anole-")))
            preload, environment = self._target.preload, self._target.environment()
            building = partial(start_building, self._task)
            running = partial(start_running, self._task, self._evaluator, self._limits.relative_error)
            self._runner = stack.enter_context(Worker(running, preload=preload, environment=environment))
            self._builders = [
                stack.enter_context(Worker(building, preload=preload)) for _ in range(self._n_builders)
            ]
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

    def confirm(self, configs: Sequence[Config], seconds: float = 1.5) -> list[Measurement]:
        """Measures rivals together, in turns, so that all meet the same state of the machine.

        Args:
            configs: a handful.
            seconds: wall clock to spend on all of them.

        Returns:
            Their measurements, in order; each latency is the median over all turns.
        """
        built = self._build_all(configs)
        able = [candidate for candidate in built if candidate.failure is None]
        began_s = time.perf_counter()
        with device_lock(self._device):
            try:
                outcomes: list[Timed] = self._runner.call(
                    [(str(candidate.artifact), dict(candidate.config)) for candidate in able],
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
        idle, busy = list(self._builders), {}
        built: dict[int, _Built] = {}
        with device_lock(self._device, shared=True):
            while waiting or busy:
                while waiting and idle:
                    position, config = waiting.pop()
                    builder, artifact = idle.pop(), self._folder / f"{uuid4().hex}.so"
                    builder.submit(dict(config), str(artifact))
                    busy[builder.connection] = (builder, position, config, artifact, time.perf_counter())
                oldest_s = min(began_s for *_, began_s in busy.values())
                left_s = oldest_s + self._limits.build_s - time.perf_counter()
                ready = wait(list(busy), timeout=max(0.0, left_s)) or [
                    connection for connection, (*_, began_s) in busy.items() if began_s == oldest_s
                ]
                for connection in ready:
                    builder, position, config, artifact, began_s = busy.pop(connection)
                    built[position] = self._finish_build(builder, config, artifact, began_s)
                    idle.append(builder)
        return [built[position] for position in range(len(configs))]

    def _finish_build(self, builder: Worker, config: Config, artifact: Path, began_s: float) -> _Built:
        failure = None
        try:
            builder.result(timeout_s=0.0)
        except _FAILURES as error:
            status = Status.BUILD_TIMEOUT if isinstance(error, WorkerTimeout) else Status.BUILD_ERROR
            failure = Measurement(status, str(error), build_s=time.perf_counter() - began_s)
        return _Built(config, artifact, time.perf_counter() - began_s, failure)

    def _run(self, candidate: _Built) -> Measurement:
        began_s = time.perf_counter()
        try:
            (timed,) = self._runner.call(
                [(str(candidate.artifact), dict(candidate.config))], timeout_s=self._limits.run_s
            )
        except _FAILURES as error:
            status = Status.RUN_TIMEOUT if isinstance(error, WorkerTimeout) else Status.RUN_ERROR
            run_s = time.perf_counter() - began_s
            return Measurement(status, str(error), build_s=candidate.build_s, run_s=run_s)
        return self._judge(candidate, timed, time.perf_counter() - began_s)

    def _judge(self, candidate: _Built, timed: Timed, run_s: float) -> Measurement:
        cost = {"build_s": candidate.build_s, "run_s": run_s}
        if timed.timing is None:
            allowed = self._limits.relative_error
            reason = f"relative error {timed.relative_error:.3g}; at most {allowed:g} is allowed"
            return Measurement(Status.WRONG_ANSWER, reason, **cost)
        return Measurement(Status.OK, **asdict(timed.timing), **cost)
