"""Runs a stage in a process of its own, so that a model that hangs, crashes or exits ends with a message.

The code that makes a model is not Anole's. It may end the process that calls it, even with the status of success, or it
may never come back. The guard forks before anything heavy is imported, and waits for the stage.
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
"""How long each step of loading a model may take."""

LIMIT_NAME = "ANOLE_MODEL_LIMIT_S"
"""The environment variable that sets another limit."""

_END_S = 60.0
"""How long the process may take to end after its work is done; threads that a model left may keep it alive."""

_DONE = b"done"
_PR_SET_PDEATHSIG = 1

_report: int | None = None


def guard(where: str) -> None:
    """Fork: the child returns and runs the stage, the parent waits for it and never returns.

    Call it before a library starts threads or a device.

    Args:
        where: what the stage works on, which begins each message.

    Raises:
        ExtractError: in the old process: the stage did not end by itself, or a step took longer than the limit.
        SystemExit: in the old process: the stage ended by itself, with this status.
    """
    global _report
    limit_s = _limit_s()
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    guardian = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reading)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guardian:
            os._exit(1)
        _report = writing
        return
    os.close(writing)
    raise SystemExit(_Watch(child, reading, where, limit_s).status())


@contextmanager
def step(what: str) -> Iterator[None]:
    """Tell the guard, if there is one, of a step that runs code of a model; the step has a limit of time."""
    _tell(what.replace("\n", " ").encode(errors="replace")[:1000])
    try:
        yield
    finally:
        _tell(b"")


def finish() -> None:
    """Tell the guard, if there is one, that the stage has done its work."""
    _tell(_DONE)


def _tell(message: bytes) -> None:
    if _report is not None:
        # Without a guard that listens, this process is about to be killed.
        with suppress(OSError):
            os.write(_report, message + b"\n")


def _limit_s() -> float:
    given = os.environ.get(LIMIT_NAME)
    try:
        limit_s = LIMIT_S if given is None else float(given)
    except ValueError:
        limit_s = 0.0
    if not 0 < limit_s < float("inf"):
        raise ExtractError(f"{LIMIT_NAME}: found {given!r}; a number of seconds above 0 is expected")
    return limit_s


class _Watch:
    """Waits for a stage."""

    def __init__(self, child: int, reading: int, where: str, limit_s: float) -> None:
        self._child, self._reading, self._where, self._limit_s = child, reading, where, limit_s
        self._handle = os.pidfd_open(child)
        self._text, self._step, self._deadline = b"", "", float("inf")
        self._is_done = self._is_terminated = False

    def status(self) -> int:
        """Return the status with which the stage ended by itself.

        Raises:
            ExtractError: it did not.
        """
        # A terminal sends Ctrl-C to both processes.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._pass_on)
        ended = self._wait()
        code = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        if self._is_done:
            return max(code, 0)
        if not ended:
            raise ExtractError(
                f"{self._where}: {self._step} did not end within {self._limit_s:g} s; "
                f"set {LIMIT_NAME} to another number of seconds if it needs longer"
            )
        if code < 0 and self._is_terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        if code < 0:
            hint = "; the memory may be too small" if -code == signal.SIGKILL else ""
            raise ExtractError(f"{self._where}: {self._step or 'the stage'} was ended by {_signal_name(-code)}{hint}")
        if code == 0 or self._step:
            raise ExtractError(f"{self._where}: {self._step or 'something'} ended the process with status {code}")
        return code

    def _wait(self) -> bool:
        """Whether the stage ended before the limit; otherwise it is killed."""
        sources = [self._handle, self._reading]
        while True:
            left_s = None if self._deadline == float("inf") else max(self._deadline - time.monotonic(), 0)
            ready = select.select(sources, [], [], left_s)[0]
            if self._reading in ready:
                text = os.read(self._reading, 4096)
                if not text:
                    sources.remove(self._reading)
                self._hear(text)
            elif self._handle in ready:
                return True
            else:
                os.kill(self._child, signal.SIGKILL)
                return False

    def _hear(self, text: bytes) -> None:
        *messages, self._text = (self._text + text).split(b"\n")
        for message in messages:
            self._is_done |= message == _DONE
            limit_s = min(_END_S, self._limit_s) if self._is_done else self._limit_s if message else float("inf")
            self._step, self._deadline = message.decode(errors="replace"), time.monotonic() + limit_s

    def _pass_on(self, number: int, frame: Any) -> None:
        del frame
        self._is_terminated = True
        with suppress(ProcessLookupError):
            os.kill(self._child, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
