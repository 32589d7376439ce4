"""An engine in a process of its own, which runs only while it is its turn.

Thread pools of several engines in one process spin beside each other after every run: ONNX Runtime falls to a quarter
of its speed on small networks beside OpenVINO. A process that waits for its turn sleeps, with all of its threads.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Self

from anole.errors import AnoleError
from anole.evaluate.interleave import Times, burst
from anole.host.cores import caller_apart, spread_busy_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anole.evaluate.engines import Engine

_FAREWELL_S = 10.0
"""How long a process may take to leave, before it is killed."""


class EngineError(AnoleError):
    """An engine does not start, or its process ended; the message says why."""


@dataclass(frozen=True)
class Started:
    """What an engine says once it has run for the first time.

    Attributes:
        outputs: of the network.
        start_s: from nothing to these outputs, with all that was imported for it.
    """

    outputs: list[NDArray[Any]]
    start_s: float


class EngineProcess:
    """A context manager that starts an engine apart, lets it take turns, and ends it.

    The process inherits this one's environment variables, as they are when it is entered.

    Args:
        start: called in the process, returns the engine; must be picklable.
    """

    def __init__(self, start: Callable[[], Engine]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, self._theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._theirs, start))
        self.started: Started

    def __enter__(self) -> Self:
        """Starts the engine and waits for its first outputs.

        Raises:
            EngineError: it does not start.
        """
        self._process.start()
        self._theirs.close()
        try:
            self.started = self._receive()
        except EngineError:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def burst(self, burst_s: float) -> Times:
        """Takes a turn, see `anole.evaluate.interleave.burst`.

        Raises:
            EngineError: the engine fails, or its process ended.
        """
        # A process that is gone is found out, and why, when its answer does not come.
        with suppress(BrokenPipeError):
            self._connection.send(burst_s)
        times_s: Times = self._receive()
        return times_s

    def _receive(self) -> Any:
        try:
            found = self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.join()
            raise EngineError(f"its process exited with {self._process.exitcode}") from error
        if isinstance(found, EngineError):
            raise found
        return found

    def _end(self) -> None:
        self._connection.close()
        self._process.join(_FAREWELL_S)
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, start: Callable[[], Engine]) -> None:
    """Starts an engine, sends what it is, and a turn's times for every number of seconds that comes."""
    # Standard output belongs to the master, whatever an engine prints.
    os.dup2(2, 1)
    began_s = time.perf_counter()
    try:
        engine = start()
        connection.send(Started(engine.compute(), time.perf_counter() - began_s))
        spread_busy_threads(engine.run)
        while True:
            burst_s = connection.recv()
            with caller_apart():
                times_s = burst(engine.run, burst_s)
            connection.send(times_s)
    except EOFError:
        return
    except Exception as error:
        connection.send(EngineError(f"{type(error).__name__}: {str(error).strip()[:200]}"))
