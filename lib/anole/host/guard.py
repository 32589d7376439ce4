"""Run a stage in a child process, so a model that hangs, crashes or exits is reported with a message.

The code of a model is not part of Anole. It may end the process that calls it, even with exit status 0, or never
return. The guard forks before anything heavy is imported, and waits for the stage.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from anole.errors import ExtractError

LIMIT_S = 600.0
"""Default time limit for each step of loading a model."""

LIMIT_NAME = "ANOLE_MODEL_LIMIT_S"
"""The environment variable that overrides the limit."""

_EXIT_GRACE_S = 60.0
"""Time for the process to exit after its work is done; threads that the model left running may keep it alive."""

_DONE = b"done"
_PR_SET_PDEATHSIG = 1

_report_fd: int | None = None


def guard(where: str) -> None:
    """Fork. The child returns and runs the stage; the parent waits for it and exits.

    Call this before a library starts threads or a device.

    Args:
        where: the prefix of each message, such as the model's name.

    Raises:
        ExtractError: in the parent: the stage was killed, exceeded a step's limit, or was ended by the model's code.
        SystemExit: in the parent: the stage exited, with this status.
    """
    global _report_fd
    limit_s = _limit_s()
    sys.stdout.flush()
    sys.stderr.flush()
    read_fd, write_fd = os.pipe()
    parent_pid = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(read_fd)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)
        _report_fd = write_fd
        return
    os.close(write_fd)
    raise SystemExit(_Watch(child, read_fd, where, limit_s).status())


@contextmanager
def step(what: str) -> Iterator[None]:
    """Report to the guard, if there is one, a step that runs code of a model and therefore has a time limit."""
    _send(what.replace("\n", " ").encode(errors="replace")[:1000])
    try:
        yield
    finally:
        _send(b"")


def finish() -> None:
    """Report to the guard, if there is one, that the stage has done its work."""
    _send(_DONE)


def _send(message: bytes) -> None:
    if _report_fd is not None:
        # If the guard no longer listens, this process is about to be killed.
        with suppress(OSError):
            os.write(_report_fd, message + b"\n")


def _limit_s() -> float:
    setting = os.environ.get(LIMIT_NAME)
    try:
        limit_s = LIMIT_S if setting is None else float(setting)
    except ValueError:
        limit_s = 0.0
    if not 0 < limit_s < float("inf"):
        raise ExtractError(f"{LIMIT_NAME}: found {setting!r}; expected a positive number of seconds")
    return limit_s


class _Watch:
    """The parent's view of a stage that it waits for."""

    def __init__(self, child: int, read_fd: int, where: str, limit_s: float) -> None:
        self._child, self._read_fd, self._where, self._limit_s = child, read_fd, where, limit_s
        self._child_handle = os.pidfd_open(child)
        self._buffer, self._step, self._deadline = b"", "", float("inf")
        self._is_done = self._is_terminated = False

    def status(self) -> int:
        """Return the stage's exit status.

        Raises:
            ExtractError: the stage was killed, exceeded a step's limit, or was ended by the model's code.
        """
        # A terminal sends Ctrl-C to both processes; the stage handles it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._forward_signal)
        has_ended = self._wait()
        code = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        if self._is_done:
            return max(code, 0)
        if not has_ended:
            raise ExtractError(
                f"{self._where}: {self._step} did not finish within {self._limit_s:g} s; "
                f"set the environment variable {LIMIT_NAME} to more seconds if it takes longer"
            )
        if code < 0 and self._is_terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        if code < 0:
            hint = "; the machine may have run out of memory" if -code == signal.SIGKILL else ""
            raise ExtractError(f"{self._where}: {self._step or 'the stage'} was killed by {_signal_name(-code)}{hint}")
        if code == 0 or self._step:
            event = f"{self._step} ended the process" if self._step else "the process exited unexpectedly"
            raise ExtractError(f"{self._where}: {event} with status {code}")
        return code

    def _wait(self) -> bool:
        """Return whether the stage ended before the limit; kill it otherwise."""
        sources = [self._child_handle, self._read_fd]
        while True:
            remaining_s = None if self._deadline == float("inf") else max(self._deadline - time.monotonic(), 0)
            ready = select.select(sources, [], [], remaining_s)[0]
            if self._read_fd in ready:
                data = os.read(self._read_fd, 4096)
                if not data:
                    sources.remove(self._read_fd)
                self._read_messages(data)
            elif self._child_handle in ready:
                return True
            else:
                os.kill(self._child, signal.SIGKILL)
                return False

    def _read_messages(self, text: bytes) -> None:
        *messages, self._buffer = (self._buffer + text).split(b"\n")
        for message in messages:
            self._is_done |= message == _DONE
            limit_s = min(_EXIT_GRACE_S, self._limit_s) if self._is_done else self._limit_s if message else float("inf")
            self._step, self._deadline = message.decode(errors="replace"), time.monotonic() + limit_s

    def _forward_signal(self, number: int, frame: Any) -> None:
        del frame
        self._is_terminated = True
        with suppress(ProcessLookupError):
            os.kill(self._child, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
