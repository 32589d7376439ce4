"""Worker processes: a crash, a hang or memory exhaustion in one of them costs only its current call.

All workers are forked from one server that has already imported the target's modules, so a new worker starts in
milliseconds. Each worker leads a process group, which the master kills, or a guard if the master ends.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from anole.errors import DeviceLostError, MachineError, MeasureError, TargetError, cause
from anole.host.faults import KILLED, full_disk, machine_error, machine_error_in

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 120.0
"""Time limit for starting a worker; the first one waits for the server's imports."""


class CallError(Exception):
    """A call failed, and the call itself is at fault."""


class WorkerDied(CallError):
    """The worker's process ended during a call; the message gives the cause."""


class WorkerTimeout(CallError):
    """A call exceeded its time limit and was killed."""


class CallTimedOut(WorkerTimeout):
    """The called function itself reported a timeout."""


class CallFailed(CallError):
    """The called function raised an exception; this exception quotes its message."""


_DEVICE_ERRORS = (DeviceLostError, MachineError, TargetError)
"""Errors that reach the master unchanged: the call is not at fault."""


def prepare(preload: Sequence[str]) -> None:
    """Start the server that forks workers, without waiting for its imports; for `preload` see `Worker`."""
    _context(preload)
    forkserver.ensure_running()


class Worker(AbstractContextManager["Worker"]):
    """An isolated process that runs one call at a time and is replaced when it dies.

    Args:
        start: called in the process when it starts; returns the function that handles the calls. Must be picklable.
        preload: modules that the common server imports once, before any worker is forked.
        environment: additional environment variables.
        calls_before_restart: number of calls after which the process is replaced, to limit memory leaks.
        grace_s: time for the process to end by itself before it is killed. TVM's RPC server, for example, stops
            listening if it cannot send its answer to a killed client.
    """

    def __init__(
        self,
        start: Callable[[], Callable[..., Any]],
        *,
        preload: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        calls_before_restart: int = 500,
        grace_s: float = 0.0,
    ) -> None:
        self._start, self._environment = start, dict(environment or {})
        self._calls_before_restart, self._grace_s = calls_before_restart, grace_s
        self._context = _context(preload)
        self.connection: Connection
        """The connection that becomes readable when a call has ended, for waiting for several workers."""
        self._process: Any = None
        self._ready = False

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The process id."""
        return int(self._process.pid)

    def launch(self) -> None:
        """Start the process unless it runs already, for example to have it ready before the first call."""
        if self._process is not None:
            return
        try:
            self._start_process()
        except OSError as error:
            raise MachineError(f"cannot start a worker process: {cause(error)}") from error

    def submit(self, *arguments: Any) -> None:
        """Submit a call.

        Raises:
            MachineError: the machine cannot start a process.
            MeasureError: the process does not start, or its device is not available.
            TargetError: this machine, or the server, has no such device.
            OSError: the process has ended.
        """
        if self._process is not None and self._n_calls >= self._calls_before_restart:
            self.end()
        self.launch()
        self.await_ready()
        self._n_calls += 1
        self._began_s = time.perf_counter()
        self.connection.send(arguments)

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the launched process accepts calls; its connection is readable then. Raises as `submit` does."""
        if self._ready:
            return
        try:
            self._receive(timeout_s)
        except _DEVICE_ERRORS:
            self.kill()
            raise
        except CallError as error:
            self.kill()
            raise MeasureError(f"a worker process failed to start: {error}") from error
        self._ready = True

    def result(self, timeout_s: float) -> Any:
        """Wait for the submitted call and return its result.

        Raises:
            CallFailed: the function raised.
            WorkerTimeout: the call took too long.
            WorkerDied: the process ended.
            DeviceLostError: the device that the call used was lost.
            MachineError: the machine is at fault, for example because its disk is full.
            TargetError: the machine, or the server, does not have the hardware or software that the target needs.
        """
        return self._receive(timeout_s)

    def call(self, *arguments: Any, timeout_s: float) -> Any:
        """Submit a call, wait for it and return its result; raise as `submit` and `result` do."""
        self.submit(*arguments)
        return self.result(timeout_s)

    def release(self) -> None:
        """Let the process end by itself and release its resources; `end` waits for it."""
        if self._process is not None and self._grace_s:
            self.connection.close()

    def end(self) -> None:
        """End the process and its descendants, after giving it time to release its resources."""
        self.release()
        if self._process is not None and self._grace_s:
            self._process.join(self._grace_s)
        self.kill()

    def kill(self) -> None:
        """Kill the process and its descendants."""
        if self._process is None:
            return
        for kill in (lambda: os.killpg(self._process.pid, signal.SIGKILL), self._process.kill):
            with suppress(ProcessLookupError):
                kill()
        self._process.join()
        self.connection.close()
        self._process = None
        Path(self._log_path).unlink(missing_ok=True)

    def _start_process(self) -> None:
        handle, self._log_path = tempfile.mkstemp(prefix="anole-worker-", suffix=".log")
        os.close(handle)
        self.connection, worker_connection = self._context.Pipe()
        arguments = (worker_connection, self._start, self._environment, self._log_path)
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        self._process = process
        worker_connection.close()
        self._n_calls, self._ready, self._began_s = 0, False, time.perf_counter()

    def _receive(self, timeout_s: float) -> Any:
        try:
            if not self.connection.poll(timeout_s):
                self.kill()
                raise WorkerTimeout(f"killed after {time.perf_counter() - self._began_s:.1f} s")
            succeeded, value = self.connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.join(5)
            exit_cause, log_line = _exit_cause(self._process.exitcode), self._last_log_line()
            self.kill()
            message = f"{exit_cause}{': ' if log_line else ''}{log_line}"
            raise (machine_error_in(message) or (None if log_line else full_disk()) or WorkerDied(message)) from error
        if not succeeded:
            raise value
        return value

    def _last_log_line(self) -> str:
        lines = Path(self._log_path).read_text(errors="replace", encoding="utf-8").strip().splitlines()
        return lines[-1][-500:] if lines else ""


def _context(preload: Sequence[str]) -> ForkServerContext:
    """Return the multiprocessing context whose fork server imports the given modules, unless it already runs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["anole.host.block_torch_import", *preload])
    return context


def _serve(
    connection: Connection, start: Callable[[], Callable[..., Any]], environment: Mapping[str, str], log: str
) -> None:
    os.setsid()
    _fork_guard(connection)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    with suppress(BrokenPipeError, EOFError):
        _answer_calls(connection, start)


def _answer_calls(connection: Connection, start: Callable[[], Callable[..., Any]]) -> None:
    """Answer calls until the master closes its end of the connection, which raises EOFError or BrokenPipeError."""
    try:
        handle = start()
    except BaseException as error:
        connection.send((False, _to_call_error(error)))
        return
    connection.send((True, None))
    while True:
        arguments = connection.recv()
        try:
            reply = (True, handle(*arguments))
        except Exception as error:
            reply = (False, _to_call_error(error))
        connection.send(reply)


def _fork_guard(connection: Connection) -> None:
    """Fork a guard process that kills the process group when the master ends, even if a candidate hangs."""
    master = multiprocessing.parent_process()
    if master is None or os.fork():
        return
    # While a copy of the connection is open in the guard, the master cannot notice the worker's death.
    connection.close()
    master.join()
    os.killpg(0, signal.SIGKILL)


def _to_call_error(error: BaseException) -> Exception:
    """Return the exception that the master raises: faults of the device or machine unchanged, others as CallError."""
    if isinstance(error, _DEVICE_ERRORS):
        return error
    if (fault := machine_error(error)) is not None:
        return fault
    return CallTimedOut(str(error)) if isinstance(error, TimeoutError) else CallFailed(cause(error))


def _exit_cause(code: int | None) -> str:
    if code is None:
        return "the process stopped answering"
    if code == -signal.SIGKILL:
        return KILLED
    if code < 0:
        return f"the process was killed by {signal.Signals(-code).name}"
    return f"the process exited with {code}"
