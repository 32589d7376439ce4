"""A process with the emulated GPU, which calls functions for another process."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from threading import Timer
from typing import Any, Self, TypeVar

from anole.errors import AnoleError
from kit.emulated_gpu.machine import environment

Result = TypeVar("Result")


class EmulationError(AnoleError):
    """A called function failed; the message is that of its exception, such as a race that the device found."""


class EmulatedGpu:
    """A process on a machine with an emulated GPU; it is killed when a call takes longer than `limit_s`."""

    def __init__(self, arch: str = "sm_90", limit_s: float = 300.0) -> None:
        self._environment, self.limit_s = environment(arch), limit_s
        self._process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in the process; it must be importable there, such as those of `programs`.

        If the process ends, the next call has a new one.

        Raises:
            EmulationError: it failed, ended the process or exceeded the limit.
        """
        into, out = self._process.stdin, self._process.stdout
        assert into is not None and out is not None
        limit = Timer(self.limit_s, os.killpg, (self._process.pid, signal.SIGKILL))
        limit.start()
        try:
            pickle.dump((function, arguments), into)
            into.flush()
            is_good, answer = pickle.load(out)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            reason = f"exceeded {self.limit_s:g} s" if limit.finished.is_set() else "ended"
            status = self._process.wait()
            self.close()
            self._process = self._start()
            raise EmulationError(f"the process of the emulated GPU {reason} (status {status})") from error
        finally:
            limit.cancel()
        if not is_good:
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
        # It finds the modules that this process finds.
        variables = {**self._environment, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.Popen(
            command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )


def serve() -> None:
    """Call functions as they are asked for on standard input, until that ends."""
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What functions print does not get among the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with suppress(EOFError):
        while True:
            function, arguments = pickle.load(asked)
            pickle.dump(_answer(function, arguments), answers)
            answers.flush()


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Whether a call succeeded, and its result or why it failed."""
    try:
        return True, function(*arguments)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        # After the message, TVM shows the whole source.
        message = str(error).partition("// func_name")[0].strip()
        return False, f"{type(error).__name__}: {message} ({last.filename}:{last.lineno})"
