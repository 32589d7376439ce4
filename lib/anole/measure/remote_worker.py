"""A lane: one remote server at a time, on which one call after another runs; nothing here waits."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from anole.errors import DeviceLostError, MachineError, TargetError
from anole.host.process import START_TIMEOUT_S, CallError, CallFailed, CallTimedOut, Worker
from anole.measure.options import MeasureOptions
from anole.targets.base import Device
from anole.targets.rpc.address import Remote, Server
from anole.targets.rpc.tracker import Tracker, count_servers

logger = logging.getLogger(__name__)

_SILENCE_S = 10.0
_GRACE_S = 5.0
_BUSY_LOOKS_S = 0.5
_LOOKS_S = 5.0
"""How often a lane makes sure that there still is a server to wait for."""

_REPLACED_AFTER = 1 << 40
"""Calls of a process: as many as its session allows."""


class WorkerState(Enum):
    """What a lane is doing."""

    WAITING = auto()
    STARTING = auto()
    LOOKING = auto()
    ASKING = auto()
    OPENING = auto()
    READY = auto()
    RUNNING = auto()
    GONE = auto()


@dataclass(frozen=True)
class Ended:
    """How a call ended.

    Attributes:
        server: where it ran.
        run_s: wall-clock seconds since it was submitted.
        value: what it returned.
        error: why it returned nothing: `DeviceLostError` if its server was lost, otherwise the call is at fault.
    """

    server: str
    run_s: float
    value: Any = None
    error: Exception | None = None


class RemoteWorker:
    """Finds a server, opens a session with it in a process of its own, and opens the next one when that ends.

    Servers of a tracker are asked for in its queue, by a lane that may queue; other lanes take only what is free. So
    whoever else waits goes first as soon as a session ends, which is after `Limits.lease_s` at the latest.

    Args:
        places: the tracker, or servers to try in turns.
        start: called in each process; returns the function that handles the calls. Its first argument, once, is the
            server to open a session with.

    Attributes:
        server: the server of the current session, or of the last one; the place before there was any.
        failure: why there was no session when one was last tried; None since there is one.
        failed_at: the place where it was tried.
        wait_s: seconds until the next try after that.
    """

    def __init__(
        self,
        places: Sequence[Remote],
        start: Callable[[], Callable[..., Any]],
        target: Device,
        options: MeasureOptions,
    ) -> None:
        self._places, self._limits, self._retries = deque(places), options.limits, options.retries
        self._worker = Worker(
            start,
            preload=target.preload,
            environment=target.environment(),
            calls_before_restart=_REPLACED_AFTER,
            grace_s=_GRACE_S,
        )
        self._tracker: Tracker | None = None
        self._is_told_busy = False
        self._waits = self._retries.waits()
        self.server, self.wait_s = str(self._places[0]), 0.0
        self.failure: DeviceLostError | None = None
        self.failed_at = ""
        self._be(WorkerState.WAITING, 0.0)

    @property
    def connections(self) -> list[Any]:
        """What becomes readable when the lane can go on."""
        if self.state is WorkerState.ASKING and self._tracker is not None:
            return [self._tracker.connection]
        has_news = self.state in (WorkerState.STARTING, WorkerState.OPENING, WorkerState.READY, WorkerState.RUNNING)
        return [self._worker.connection] if has_news else []

    @property
    def left_s(self) -> float:
        """Seconds until the lane goes on in any case; infinite if it never does."""
        return max(0.0, self._ends_s - time.perf_counter())

    @property
    def holds(self) -> bool:
        """Whether it has a server, or is in the tracker's queue for one."""
        return self.state in (WorkerState.ASKING, WorkerState.OPENING, WorkerState.READY, WorkerState.RUNNING)

    @property
    def is_ready(self) -> bool:
        """Whether it takes a call: it has a session with enough time left."""
        return self.state is WorkerState.READY and self.left_s > 0

    def submit(self, *arguments: Any) -> bool:
        """Submit a call, for which the lane must be ready; returns whether its session took it."""
        try:
            self._worker.submit(*arguments)
        except OSError:
            # The process has ended meanwhile; `advance` would have noticed it next.
            self._restart()
            return False
        # A server enforces a call's limit itself; this limit only detects that the server is silent.
        self._be(WorkerState.RUNNING, self._limits.session_s + _SILENCE_S)
        self._sent_s = time.perf_counter()
        return True

    def advance(self, readable: Container[Any], may_queue: bool) -> Ended | None:
        """Goes on, if it can, and returns how the running call ended, if it did.

        Only one that `may_queue` waits in the tracker's queue.

        Raises:
            MeasureError: the machine or the server is at fault, and waiting would not help.
            TargetError: the server has no such device.
        """
        if self.left_s > 0 and not any(each in readable for each in self.connections):
            return None
        try:
            return self._step(may_queue)
        except DeviceLostError as error:
            self._lose(error)
            return None

    def release(self) -> None:
        """Let the process give the server back; `end` waits for that."""
        self._leave_queue()
        self._worker.release()

    def end(self) -> None:
        """Give the server back, or the place in the tracker's queue."""
        self._leave_queue()
        self._worker.end()
        self._be(WorkerState.GONE, math.inf)

    def _step(self, may_queue: bool) -> Ended | None:
        match self.state:
            case WorkerState.WAITING:
                self._worker.launch()
                self._be(WorkerState.STARTING, START_TIMEOUT_S)
            case WorkerState.STARTING:
                self._worker.await_ready(0.0)
                self._find(may_queue)
            case WorkerState.LOOKING:
                self._find(may_queue)
            case WorkerState.ASKING:
                self._ask_on()
            case WorkerState.OPENING:
                self._opened()
            case WorkerState.READY:
                self._restart()
            case WorkerState.RUNNING:
                return self._ended()
        return None

    def _find(self, may_queue: bool) -> None:
        """Open a session with the server of this place, or ask the tracker for one."""
        place = self._places[0]
        if place.key is None:
            self._open(Server(place.host, place.port))
            return
        self._leave_queue()
        self._tracker = Tracker(place)
        _, n_free = self._tracker.count()
        if not n_free and not may_queue:
            self._be(WorkerState.LOOKING, _BUSY_LOOKS_S)
            return
        if not n_free:
            self._waits = self._retries.waits()
            if not self._is_told_busy:
                logger.info("all servers of the key %r at %s are in use; waiting for one", place.key, place)
            self._is_told_busy = True
        self._tracker.request()
        self._be(WorkerState.ASKING, _LOOKS_S)

    def _ask_on(self) -> None:
        """Take the server that the tracker has granted, or makes sure that there still is one to wait for."""
        assert self._tracker is not None, "nothing was asked for"
        if self.left_s > 0:
            server = self._tracker.granted()
            self._open(server)
            return
        count_servers(self._places[0])
        self._be(WorkerState.ASKING, _LOOKS_S)

    def _open(self, server: Server) -> None:
        self.server = f"the RPC server {server}"
        try:
            self._worker.submit(server)
        except OSError as error:
            raise _silent(self.server, error) from error
        self._be(WorkerState.OPENING, self._limits.connect_s)

    def _opened(self) -> None:
        try:
            self._receive()
        except CallError as error:
            raise _silent(self.server, error) from error
        self._leave_queue()
        self._waits = self._retries.waits()
        self.failure, self._is_told_busy = None, False
        self._be(WorkerState.READY, self._limits.lease_s)
        self._lease_ends_s = self._ends_s

    def _ended(self) -> Ended:
        run_s = time.perf_counter() - self._sent_s
        try:
            value = self._receive()
        except (CallFailed, CallTimedOut) as error:
            # Damage that a kernel does to a device's context may last as long as the session.
            self._restart()
            return Ended(self.server, run_s, error=error)
        except (DeviceLostError, CallError) as error:
            lost = error if isinstance(error, DeviceLostError) else _silent(self.server, error)
            self._places.rotate(-1)
            self._restart()
            return Ended(self.server, run_s, error=lost)
        self._be(WorkerState.READY, max(0.0, self._lease_ends_s - time.perf_counter()))
        return Ended(self.server, run_s, value)

    def _receive(self) -> Any:
        """Return the result of the call, which has ended or has no time left."""
        try:
            return self._worker.result(0.0)
        except (MachineError, TargetError) as error:
            raise type(error)(f"{self.server}: {error}") from error

    def _lose(self, error: DeviceLostError) -> None:
        """Wait before the next try to find a server, or give up."""
        self._end_session()
        self.failure, self.failed_at = error, str(self._places[0])
        self._places.rotate(-1)
        wait_s = next(self._waits, None)
        if wait_s is None:
            self._be(WorkerState.GONE, math.inf)
        else:
            self.wait_s = wait_s
            self._be(WorkerState.WAITING, wait_s)

    def _restart(self) -> None:
        self._end_session()
        self._be(WorkerState.WAITING, 0.0)

    def _end_session(self) -> None:
        self._leave_queue()
        self._worker.end()

    def _leave_queue(self) -> None:
        if self._tracker is not None:
            with suppress(OSError):
                self._tracker.close()
            self._tracker = None

    def _be(self, state: WorkerState, seconds: float) -> None:
        self.state, self._ends_s = state, time.perf_counter() + seconds


def _silent(server: str, error: Exception) -> DeviceLostError:
    return DeviceLostError(f"{server} gives no answer: {error}")
