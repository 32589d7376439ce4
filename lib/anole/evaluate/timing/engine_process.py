"""A separate process that runs an engine and is idle except during the engine's turns.

In one process, the thread pools of several engines keep spinning after every run and disturb each other. In a process
with OpenVINO, ONNX Runtime drops to a quarter of its speed on small networks. All threads of a waiting process sleep.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Self

from anole.errors import AnoleError
from anole.evaluate.timing.turns import Times, burst
from anole.host.cores import keep_caller_on_separate_core, spread_busy_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anole.evaluate.engines import Engine

_log = logging.getLogger(__name__)

_EXIT_TIMEOUT_S = 10.0
"""Seconds that a process may take to exit before it is killed."""


class EngineError(AnoleError):
    """An engine does not start or fails, or its process exited; the message says why."""


@dataclass(frozen=True)
class Started:
    """The outputs of an engine's first run, its start-up time, including imports and that run, and its precision."""

    outputs: list[NDArray[Any]]
    start_s: float
    precision: str


class EngineProcess:
    """A context manager that runs an engine in a separate process, one turn per request.

    The process inherits the environment variables that this one has on entry.

    Args:
        start: called in the new process to create the engine; must be picklable.
        pinned: whether each thread of the engine is pinned to a core, to time all engines at their best. Otherwise the
            engine and the operating system place them, as in a service.
    """

    def __init__(self, start: Callable[[], Engine], *, pinned: bool = True) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, self._child_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._child_end, start, pinned))
        self.started: Started

    def __enter__(self) -> Self:
        """Start the engine and wait for its first outputs.

        Raises:
            EngineError: the engine does not start.
        """
        self._process.start()
        self._child_end.close()
        try:
            self.started = self._receive()
        except EngineError:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def burst(self, min_burst_s: float, min_runs: int = 1) -> Times:
        """Run the engine for one turn, see `anole.evaluate.timing.turns.burst`.

        Raises:
            EngineError: the engine fails, or its process exited.
        """
        # If the process has exited, `_receive` reports it with the reason.
        with suppress(BrokenPipeError):
            self._connection.send((min_burst_s, min_runs))
        times_s: Times = self._receive()
        return times_s

    def _receive(self) -> Any:
        try:
            response = self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.join()
            raise EngineError(f"its process exited with {self._process.exitcode}") from error
        if isinstance(response, EngineError):
            raise response
        return response

    def _end(self) -> None:
        self._connection.close()
        self._process.join(_EXIT_TIMEOUT_S)
        self._process.kill()
        self._process.join()


def start_engines(
    starts: Mapping[str, Callable[[], Engine]], stack: ExitStack, where: object, *, pinned: bool = True
) -> dict[str, EngineProcess]:
    """Start engines one after another, each in a separate process, which `stack` ends; the first one is required.

    A warning, which begins with `where`, names each engine that does not start.

    Raises:
        EngineError: the first engine does not start.
    """
    engines: dict[str, EngineProcess] = {}
    for name, start in starts.items():
        try:
            engines[name] = stack.enter_context(EngineProcess(start, pinned=pinned))
        except EngineError as error:
            if not engines:
                raise EngineError(f"{where}: {name} does not run: {error}") from error
            _log.warning("%s: %s does not run: %s", where, name, error)
    return engines


def _serve(connection: Connection, start: Callable[[], Engine], pinned: bool) -> None:
    """Start an engine, send its `Started`, and then the times of a turn for each received request."""
    # Standard output may be the parent's CSV; redirect everything that an engine prints.
    os.dup2(2, 1)
    began_s = time.perf_counter()
    try:
        engine = start()
        connection.send(Started(engine.compute(), time.perf_counter() - began_s, engine.precision))
        if pinned:
            spread_busy_threads(engine.run)
        while True:
            min_burst_s, min_runs = connection.recv()
            with keep_caller_on_separate_core() if pinned else nullcontext():
                times_s = burst(engine.run, min_burst_s, min_runs)
            connection.send(times_s)
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        connection.send(EngineError(f"{type(error).__name__}: {str(error).strip()[:200]}"))
