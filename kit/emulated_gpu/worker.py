"""A worker process with the emulated GPU, which calls functions for its parent."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from threading import Timer
from typing import Any, TypeVar

from anole.errors import AnoleError
from kit.emulated_gpu.machine import build_environment

Result = TypeVar("Result")


class EmulationError(AnoleError):
    """An error in a called function, with the message of its exception, such as a race that the device found."""


class EmulatedGpu(AbstractContextManager["EmulatedGpu"]):
    """A process with an emulated GPU; it is killed when a call takes longer than `limit_s`."""

    def __init__(self, arch: str = "sm_90", limit_s: float = 300.0) -> None:
        self._environment, self.limit_s = build_environment(arch), limit_s
        self._process = self._start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in the process, which must be able to import it, such as the functions of `programs`.

        If the process ends, the next call starts a new one.

        Raises:
            EmulationError: the function failed, ended the process or exceeded the limit.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        limit = Timer(self.limit_s, os.killpg, (self._process.pid, signal.SIGKILL))
        limit.start()
        try:
            pickle.dump((function, arguments), stdin)
            stdin.flush()
            is_ok, answer = pickle.load(stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            reason = f"exceeded {self.limit_s:g} s" if limit.finished.is_set() else "ended"
            status = self._process.wait()
            self.close()
            self._process = self._start()
            raise EmulationError(f"the process of the emulated GPU {reason} (status {status})") from error
        finally:
            limit.cancel()
        if not is_ok:
            raise EmulationError(answer)
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.terminate()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "from kit.emulated_gpu.worker import serve; serve()"]
        # The process has the same module path as this one.
        variables = {**self._environment, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(
            command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )


def serve() -> None:
    """Answer calls from standard input until it ends."""
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Functions print to standard error, because standard output is for answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with suppress(EOFError):
        while True:
            function, arguments = pickle.load(calls)
            pickle.dump(_answer(function, arguments), answers)
            answers.flush()


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Call a function, and return whether it succeeded, with its result or error message."""
    try:
        return True, function(*arguments)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        # TVM appends the complete source to the message.
        message = str(error).partition("// func_name")[0].strip()
        return False, f"{type(error).__name__}: {message} ({last.filename}:{last.lineno})"
