"""Commands in separate sessions: killing them at random times, and finding processes that they left running."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

import psutil

ROOT = Path(__file__).parents[2]
MARK = "ANOLE_STARTED_BY_TEST"
"""The environment variable that identifies the descendants of a command, even after their parent has ended."""

LONGEST_S = 180.0
"""Time limit of a command, even if other tests run in parallel."""

PATIENCE_S = 30.0
"""Time for the descendants of a killed command to end. The fork server of workers finishes its imports before it
notices that its master has ended: 4 s on a busy machine."""

_CANDIDATE = re.compile(r"/[0-9a-f]{32}\.so$", re.MULTILINE)

SHELL = [sys.executable, "-m", "anole"]


class Running:
    """A command that runs in a new session and process group."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._mark = f"{MARK}={uuid4().hex}"
        self._output = tempfile.TemporaryFile()
        name, _, value = self._mark.partition("=")
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "lib"), **(environment or {}), name: value},
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def output(self) -> str:
        """The output of the command and its descendants so far."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def wait(self, timeout_s: float = LONGEST_S) -> int:
        """Wait for the command to end and return its exit code."""
        return self.process.wait(timeout_s)

    def has_ended_within(self, seconds: float) -> bool:
        """Wait at most some seconds, and return whether the command has ended."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def left(self) -> list[psutil.Process]:
        """Return the running processes of the command and its descendants, including orphaned ones."""
        found = []
        for process in psutil.process_iter():
            try:
                environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                if self._mark.encode() in environment and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (OSError, psutil.NoSuchProcess):
                continue
        return found

    def orphans(self, patience_s: float = PATIENCE_S) -> list[str]:
        """Kill the processes that are still alive after some seconds, and return their command lines."""
        until_s = time.monotonic() + patience_s
        while (alive := self.left()) and time.monotonic() < until_s:
            time.sleep(0.02)
        killed = []
        for process in alive:
            try:
                killed.append(" ".join(process.cmdline()))
                process.kill()
            except psutil.NoSuchProcess:
                continue
        return killed


def stage_of(running: Running) -> psutil.Process | None:
    for process in running.left():
        try:
            if process.cmdline()[1:3] == ["-m", "anole"]:
                return process
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return None


def device_process_of(running: Running) -> psutil.Process | None:
    """Return the process of a tuner that has currently loaded a candidate."""
    for process in running.left():
        try:
            if _CANDIDATE.search(Path(f"/proc/{process.pid}/maps").read_text()):
                return process
        except OSError:
            continue
    return None


@dataclass(frozen=True)
class Fault:
    """A way to end a command; `strike` returns whether it found a process to kill, and the others may then run on."""

    name: str
    strike: Callable[[Running], bool]
    patience_s: float = PATIENCE_S


def _to_group(number: signal.Signals, running: Running) -> bool:
    os.killpg(running.process.pid, number)
    return True


def _to_command(number: signal.Signals, running: Running) -> bool:
    running.process.send_signal(number)
    return True


def _to_stage(running: Running) -> bool:
    stage = stage_of(running)
    if stage is not None:
        stage.kill()
    return stage is not None


OF_STAGE = (
    Fault("SIGKILL to the group", partial(_to_group, signal.SIGKILL)),
    Fault("SIGKILL to the process", partial(_to_command, signal.SIGKILL)),
    Fault("SIGTERM to the process", partial(_to_command, signal.SIGTERM)),
    Fault("SIGINT to the group", partial(_to_group, signal.SIGINT)),
)
# If only Snakemake is killed, its running job may continue to its end.
OF_SNAKEMAKE = (
    Fault("SIGKILL to the group", partial(_to_group, signal.SIGKILL)),
    Fault("SIGKILL to snakemake alone", partial(_to_command, signal.SIGKILL), patience_s=60.0),
    Fault("SIGKILL to its stage", _to_stage, patience_s=60.0),
    Fault("SIGTERM to the group", partial(_to_group, signal.SIGTERM), patience_s=60.0),
    Fault("SIGINT to the group", partial(_to_group, signal.SIGINT)),
)


def strike_at_random(
    start: Callable[[], Running], fault: Fault, rng: random.Random, moments_s: tuple[float, float]
) -> tuple[Running, bool]:
    """Start a command and strike it at a random time within `moments_s`; start it again if it ended before.

    Return the command after its end, and whether it was struck.
    """
    first_s, last_s = moments_s
    for _ in range(8):
        running, moment_s = start(), rng.uniform(first_s, last_s)
        if not running.has_ended_within(moment_s) and fault.strike(running):
            running.wait()
            return running, True
        assert running.wait() == 0, running.output
        first_s, last_s = first_s / 2, last_s / 2
    return running, False
