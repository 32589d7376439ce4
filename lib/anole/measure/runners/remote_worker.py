"""A non-blocking state machine that runs calls on one remote server at a time and replaces ended sessions."""

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

_ANSWER_MARGIN_S = 10.0
_GRACE_S = 5.0
_POLL_BUSY_S = 0.5
_POLL_S = 5.0
"""How often a queued worker checks that the tracker still has a server."""

_MAX_CALLS = 1 << 40
"""Effectively no limit: a process serves calls until its session ends."""


class WorkerState(Enum):
    """The state of a remote worker."""

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
    """The result of a call.

    Attributes:
        server: name of the server that ran the call.
        run_s: wall-clock time since the call was submitted.
        value: its return value.
        error: its error: `DeviceLostError` if the server was lost, otherwise the call is at fault.
    """

    server: str
    run_s: float
    value: Any = None
    error: Exception | None = None


class RemoteWorker:
    """An isolated process with a session on a remote server; when a session ends, it opens the next one.

    Only a worker that may queue waits in a tracker's queue; other workers use free servers. When a session ends, after
    `Limits.session_s` at the latest, other clients in the queue therefore go first.

    Args:
        places: the tracker, or servers to try in turn.
        start: called in each process; returns the function that handles the calls. Its first call takes the server to
            open a session with.

    Attributes:
        server: server of the current or last session, or attempt to open one; the first place before any attempt.
        failure: why the last attempt to open a session failed; None once a session is open.
        failed_at: the server or tracker of that attempt.
        wait_s: seconds to wait before the next attempt.
    """

    def __init__(
        self, places: Sequence[Remote], start: Callable[[], Callable[..., Any]], target: Device, options: MeasureOptions
    ) -> None:
        self._places, self._limits, self._retries = deque(places), options.limits, options.retries
        self._worker = Worker(
            start,
            preload=target.preload,
            environment=target.environment(),
            calls_before_restart=_MAX_CALLS,
            grace_s=_GRACE_S,
        )
        self._tracker: Tracker | None = None
        self._is_busy_logged = False
        self._waits = self._retries.waits()
        self.server, self.wait_s = str(self._places[0]), 0.0
        self.failure: DeviceLostError | None = None
        self.failed_at = ""
        self._enter_state(WorkerState.WAITING, 0.0)

    @property
    def connections(self) -> list[Any]:
        """Connections that become readable when the worker can make progress."""
        if self.state is WorkerState.ASKING and self._tracker is not None:
            return [self._tracker.connection]
        can_read = self.state in (WorkerState.STARTING, WorkerState.OPENING, WorkerState.READY, WorkerState.RUNNING)
        return [self._worker.connection] if can_read else []

    @property
    def left_s(self) -> float:
        """Seconds until the worker must be advanced even if no connection is readable; infinite if never."""
        return max(0.0, self._ends_s - time.perf_counter())

    @property
    def holds(self) -> bool:
        """Whether the worker has a server, or is in the tracker's queue."""
        return self.state in (WorkerState.ASKING, WorkerState.OPENING, WorkerState.READY, WorkerState.RUNNING)

    @property
    def is_ready(self) -> bool:
        """Whether the worker accepts a call, because its session has time left."""
        return self.state is WorkerState.READY and self.left_s > 0

    def submit(self, *arguments: Any) -> bool:
        """Submit a call to a ready worker; return whether its session accepted it."""
        try:
            self._worker.submit(*arguments)
        except OSError:
            # The process has ended in the meantime; the next `advance` would have noticed it.
            self._restart()
            return False
        # The server enforces the call's own limit; this one only detects that the server does not answer.
        self._enter_state(WorkerState.RUNNING, self._limits.session_s + _ANSWER_MARGIN_S)
        self._submitted_s = time.perf_counter()
        return True

    def advance(self, readable: Container[Any], may_queue: bool) -> Ended | None:
        """Take the next step if possible; return the result of the running call if it has ended.

        Only a worker that `may_queue` waits in the tracker's queue.

        Raises:
            MeasureError: the machine or the server is at fault, and waiting would not help.
            TargetError: the server has no such device.
        """
        if self.left_s > 0 and not any(connection in readable for connection in self.connections):
            return None
        try:
            return self._step(may_queue)
        except DeviceLostError as error:
            self._retry_later(error)
            return None

    def release(self) -> None:
        """Ask the process to give the server back; `end` waits for it."""
        self._leave_queue()
        self._worker.release()

    def end(self) -> None:
        """Give the server back, or leave the tracker's queue."""
        self._leave_queue()
        self._worker.end()
        self._enter_state(WorkerState.GONE, math.inf)

    def _step(self, may_queue: bool) -> Ended | None:
        match self.state:
            case WorkerState.WAITING:
                self._worker.launch()
                self._enter_state(WorkerState.STARTING, START_TIMEOUT_S)
            case WorkerState.STARTING:
                self._worker.await_ready(0.0)
                self._find_server(may_queue)
            case WorkerState.LOOKING:
                self._find_server(may_queue)
            case WorkerState.ASKING:
                self._await_grant()
            case WorkerState.OPENING:
                self._on_opened()
            case WorkerState.READY:
                self._restart()
            case WorkerState.RUNNING:
                return self._on_ended()
        return None

    def _find_server(self, may_queue: bool) -> None:
        """Open a session with the server at the first place, or request one from the tracker."""
        address = self._places[0]
        if address.key is None:
            self._open(Server(address.host, address.port))
            return
        self._leave_queue()
        self._tracker = Tracker(address)
        _, n_free = self._tracker.count()
        if not n_free and not may_queue:
            self._enter_state(WorkerState.LOOKING, _POLL_BUSY_S)
            return
        if not n_free:
            self._waits = self._retries.waits()
            if not self._is_busy_logged:
                logger.info("all servers of the key %r at %s are in use; waiting for one", address.key, address)
            self._is_busy_logged = True
        self._tracker.request()
        self._enter_state(WorkerState.ASKING, _POLL_S)

    def _await_grant(self) -> None:
        """Use the server that the tracker has granted, or check that it still has one to wait for."""
        assert self._tracker is not None, "no server was requested"
        if self.left_s > 0:
            server = self._tracker.granted()
            self._open(server)
            return
        count_servers(self._places[0])
        self._enter_state(WorkerState.ASKING, _POLL_S)

    def _open(self, server: Server) -> None:
        self.server = f"the RPC server {server}"
        try:
            self._worker.submit(server)
        except OSError as error:
            raise _no_answer(self.server, error) from error
        self._enter_state(WorkerState.OPENING, self._limits.connect_s)

    def _on_opened(self) -> None:
        try:
            self._receive()
        except CallError as error:
            raise _no_answer(self.server, error) from error
        self._leave_queue()
        self._waits = self._retries.waits()
        self.failure, self._is_busy_logged = None, False
        self._enter_state(WorkerState.READY, self._limits.lease_s)
        self._lease_ends_s = self._ends_s

    def _on_ended(self) -> Ended:
        run_s = time.perf_counter() - self._submitted_s
        try:
            value = self._receive()
        except (CallFailed, CallTimedOut) as error:
            # A kernel can damage the device's context for the rest of the session.
            self._restart()
            return Ended(self.server, run_s, error=error)
        except (DeviceLostError, CallError) as error:
            lost_error = error if isinstance(error, DeviceLostError) else _no_answer(self.server, error)
            self._places.rotate(-1)
            self._restart()
            return Ended(self.server, run_s, error=lost_error)
        self._enter_state(WorkerState.READY, max(0.0, self._lease_ends_s - time.perf_counter()))
        return Ended(self.server, run_s, value)

    def _receive(self) -> Any:
        """Return the result of a call that has ended or exceeded its limit."""
        try:
            return self._worker.result(0.0)
        except (MachineError, TargetError) as error:
            raise type(error)(f"{self.server}: {error}") from error

    def _retry_later(self, error: DeviceLostError) -> None:
        """Wait before the next attempt to find a server, or give up."""
        self._end_session()
        self.failure, self.failed_at = error, str(self._places[0])
        self._places.rotate(-1)
        wait_s = next(self._waits, None)
        if wait_s is None:
            self._enter_state(WorkerState.GONE, math.inf)
        else:
            self.wait_s = wait_s
            self._enter_state(WorkerState.WAITING, wait_s)

    def _restart(self) -> None:
        self._end_session()
        self._enter_state(WorkerState.WAITING, 0.0)

    def _end_session(self) -> None:
        self._leave_queue()
        self._worker.end()

    def _leave_queue(self) -> None:
        if self._tracker is not None:
            with suppress(OSError):
                self._tracker.close()
            self._tracker = None

    def _enter_state(self, state: WorkerState, seconds: float) -> None:
        self.state, self._ends_s = state, time.perf_counter() + seconds


def _no_answer(server: str, error: Exception) -> DeviceLostError:
    return DeviceLostError(f"{server} does not answer: {error}")
