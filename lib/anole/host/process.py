"""Isolated processes: a crash, a hang or memory exhaustion in one costs only its own call.

All workers are forked from one server that has already imported the target's modules, so that a new worker starts in
milliseconds. Each leads its own process group. The group is killed as a whole, and by its own guard process when the
master is gone.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from anole.errors import DeviceLostError, MachineError, MeasureError, TargetError, cause
from anole.host.faults import KILLED, full_disk, machine_error, machine_error_in

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 120.0
"""How long a worker may take to start; the first one waits for the server's imports."""


class CallError(Exception):
    """A call came to nothing, through its own fault."""


class WorkerDied(CallError):
    """The worker's process ended in mid-call; the message says how."""


class WorkerTimeout(CallError):
    """A call exceeded its limit and was killed."""


class CallTimedOut(WorkerTimeout):
    """The called function itself reported that it took too long."""


class CallFailed(CallError):
    """The called function raised; the message is that of its exception."""


_FAULTS_OF_THE_DEVICE = (DeviceLostError, MachineError, TargetError)
"""Errors that reach the master unchanged: the call is not at fault."""


def prepare(preload: Sequence[str]) -> None:
    """Start the server from which workers are forked, and its imports, see `Worker`, without waiting for them."""
    _context(preload)
    forkserver.ensure_running()


class Worker:
    """One isolated process that runs one call at a time and is replaced when it dies.

    Args:
        start: called in the process when it starts; returns the function that handles the calls. Must be picklable.
        preload: modules that the common server imports once, before any worker is forked.
        environment: environment variables of the process.
        calls_before_restart: number of calls after which the process is replaced, so that leaks stay small.
        grace_s: how long the process may take to end by itself. TVM's server, for one, stops listening if the answer to
            a client that was killed cannot be sent.
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
        self._process: Any = None
        self._ready = False

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def connection(self) -> Connection:
        """The connection that becomes readable when a call has ended, to wait for several workers at once."""
        return self._connection

    @property
    def pid(self) -> int:
        """The process's number."""
        return int(self._process.pid)

    def launch(self) -> None:
        """Start the process unless it runs, so that it is ready before the first call."""
        if self._process is not None:
            return
        try:
            self._start_process()
        except OSError as error:
            raise MachineError(f"a worker process cannot be started: {cause(error)}") from error

    def submit(self, *arguments: Any) -> None:
        """Submit a call.

        Raises:
            MachineError: the machine cannot start a process.
            MeasureError: the process does not start, or its device is not available.
            TargetError: this machine, or the server, has no such device.
        """
        if self._process is not None and self._n_calls >= self._calls_before_restart:
            self.end()
        self.launch()
        self.await_ready()
        self._n_calls += 1
        self._began_s = time.perf_counter()
        self._connection.send(arguments)

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the launched process takes calls; its connection is readable then. Raises as `submit`."""
        if self._ready:
            return
        try:
            self._receive(timeout_s)
        except _FAULTS_OF_THE_DEVICE:
            self.kill()
            raise
        except CallError as error:
            self.kill()
            raise MeasureError(f"a worker process did not start: {error}") from error
        self._ready = True

    def result(self, timeout_s: float) -> Any:
        """Wait for the submitted call and return its result.

        Raises:
            CallFailed: the function raised.
            WorkerTimeout: the call took too long.
            WorkerDied: the process ended.
            DeviceLostError: the device that the call used was lost.
            MachineError: the machine is at fault, for example because its disk is full.
            TargetError: the machine, or the server, lacks what the target needs.
        """
        return self._receive(timeout_s)

    def call(self, *arguments: Any, timeout_s: float) -> Any:
        """Submit a call and wait for it; raises the exceptions of `result`."""
        self.submit(*arguments)
        return self.result(timeout_s)

    def release(self) -> None:
        """Let the process end by itself, and give back what it holds; `end` waits for that."""
        if self._process is not None and self._grace_s:
            self._connection.close()

    def end(self) -> None:
        """End the process and everything it started; it may first give back what it holds."""
        self.release()
        if self._process is not None and self._grace_s:
            self._process.join(self._grace_s)
        self.kill()

    def kill(self) -> None:
        """End the process and everything it started."""
        if self._process is None:
            return
        for kill in (lambda: os.killpg(self._process.pid, signal.SIGKILL), self._process.kill):
            with suppress(ProcessLookupError):
                kill()
        self._process.join()
        self._connection.close()
        self._process = None
        Path(self._log).unlink(missing_ok=True)

    def _start_process(self) -> None:
        handle, self._log = tempfile.mkstemp(prefix="anole-worker-", suffix=".log")
        os.close(handle)
        self._connection, theirs = self._context.Pipe()
        arguments = (theirs, self._start, self._environment, self._log)
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        self._process = process
        theirs.close()
        self._n_calls, self._ready, self._began_s = 0, False, time.perf_counter()

    def _receive(self, timeout_s: float) -> Any:
        try:
            if not self._connection.poll(timeout_s):
                self.kill()
                raise WorkerTimeout(f"killed after {time.perf_counter() - self._began_s:.1f} s")
            succeeded, value = self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.join(5)
            how, said = _exit_cause(self._process.exitcode), self._last_words()
            self.kill()
            message = f"{how}{': ' if said else ''}{said}"
            raise (machine_error_in(message) or (None if said else full_disk()) or WorkerDied(message)) from error
        if not succeeded:
            raise value
        return value

    def _last_words(self) -> str:
        lines = Path(self._log).read_text(errors="replace", encoding="utf-8").strip().splitlines()
        return lines[-1][-500:] if lines else ""


def _context(preload: Sequence[str]) -> ForkServerContext:
    """Return the context that starts processes; its server imports the given modules first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["anole.host.block_torch_import", *preload])
    return context


def _serve(
    connection: Connection,
    start: Callable[[], Callable[..., Any]],
    environment: Mapping[str, str],
    log: str,
) -> None:
    os.setsid()
    _die_with_master(connection)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    with suppress(BrokenPipeError, EOFError):
        _answer_calls(connection, start)


def _answer_calls(connection: Connection, start: Callable[[], Callable[..., Any]]) -> None:
    """Answer calls until the master closes its end of the connection, which raises an error."""
    try:
        handle = start()
    except BaseException as error:
        connection.send((False, _describe(error)))
        return
    connection.send((True, None))
    while True:
        arguments = connection.recv()
        try:
            reply = (True, handle(*arguments))
        except Exception as error:
            reply = (False, _describe(error))
        connection.send(reply)


def _die_with_master(connection: Connection) -> None:
    """Fork a guard process that kills the process group when the master is gone.

    It is a process, because a thread could not act while a candidate hangs in native code.
    """
    master = multiprocessing.parent_process()
    if master is None or os.fork():
        return
    # An open copy of the connection here would hide the worker's death from the master.
    connection.close()
    master.join()
    os.killpg(0, signal.SIGKILL)


def _describe(error: BaseException) -> Exception:
    """Return the exception that the master raises for an error: the machine's faults as such, others as the call's."""
    if isinstance(error, _FAULTS_OF_THE_DEVICE):
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
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process exited with {code}"
