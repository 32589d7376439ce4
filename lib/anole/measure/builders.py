"""A pool of worker processes that build candidates."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from anole.host.process import CallError, Worker, WorkerTimeout
from anole.record import Config, Measurement, Status


@dataclass(frozen=True)
class Built:
    """A candidate after its build.

    Attributes:
        position: index among the configs of the call.
        failure: the measurement to report if the build failed, otherwise None.
    """

    position: int
    config: Config
    artifact: Path
    build_s: float
    failure: Measurement | None = None

    @property
    def loadable(self) -> tuple[str, dict[str, Any]]:
        """The artifact's path and the config, which a worker needs to load the candidate."""
        return str(self.artifact), dict(self.config)


@dataclass(frozen=True)
class _RunningBuild:
    position: int
    builder: Worker
    config: Config
    artifact: Path
    began_s: float


class Builders:
    """A pool of `n` workers that each build one candidate at a time; a context manager that ends them.

    Args:
        start: called in each worker; returns a function that builds a config into a file and returns the build time.
        preload: modules to import once, before any worker is forked.
        limit_s: time limit of one build.
        folder: folder for the artifacts.
    """

    def __init__(
        self, n: int, start: Callable[[], Callable[..., float]], preload: Sequence[str], limit_s: float, folder: Path
    ) -> None:
        self.n, self._limit_s, self._folder = n, limit_s, folder
        self._idle = [Worker(start, preload=preload) for _ in range(n)]
        self._busy: dict[Connection, _RunningBuild] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for builder in self._idle:
                stack.enter_context(builder).launch()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def n_busy(self) -> int:
        """Number of candidates being built."""
        return len(self._busy)

    @property
    def connections(self) -> list[Connection]:
        """The connections of busy builders; each becomes readable when its build ends."""
        return list(self._busy)

    @property
    def left_s(self) -> float:
        """Seconds until the oldest build reaches its limit; infinite if nothing is being built."""
        ends_s = min((build.began_s + self._limit_s for build in self._busy.values()), default=float("inf"))
        return max(0.0, ends_s - time.perf_counter())

    def begin(self, position: int, config: Config) -> None:
        """Start building a candidate; at least one builder must be idle."""
        builder, artifact = self._idle.pop(), self._folder / f"{uuid4().hex}.so"
        builder.submit(dict(config), str(artifact))
        self._busy[builder.connection] = _RunningBuild(position, builder, config, artifact, time.perf_counter())

    def collect(self, readable: Container[Any]) -> list[Built]:
        """Return the builds that have ended, according to the readable connections, or have exceeded their limit."""
        overdue_s = time.perf_counter() - self._limit_s
        ended = [key for key, build in self._busy.items() if key in readable or build.began_s <= overdue_s]
        return [self._finish(self._busy.pop(connection)) for connection in ended]

    def build_all(self, configs: Sequence[Config]) -> list[Built]:
        """Build configs in parallel and return the candidates in the order of their configs."""
        waiting, candidates = list(enumerate(configs))[::-1], list[Built]()
        while waiting or self._busy:
            while waiting and self._idle:
                self.begin(*waiting.pop())
            candidates += self.collect(wait(self.connections, self.left_s))
        return sorted(candidates, key=lambda candidate: candidate.position)

    def abandon(self) -> None:
        """Kill the running builds."""
        for build in self._busy.values():
            build.builder.kill()
            self._idle.append(build.builder)
        self._busy.clear()

    def _finish(self, build: _RunningBuild) -> Built:
        failure = None
        try:
            build_s = float(build.builder.result(timeout_s=0.0))
        except CallError as error:
            build_s = time.perf_counter() - build.began_s
            status = Status.BUILD_TIMEOUT if isinstance(error, WorkerTimeout) else Status.BUILD_ERROR
            failure = Measurement(status, str(error), build_s=build_s)
        finally:
            self._idle.append(build.builder)
        return Built(build.position, build.config, build.artifact, build_s, failure)
