"""Runs several commands at once, each with limits of its own, and stops all others while one of them takes times.

A command is a job. It works in a folder of its own, and writes the columns that are known so far to `report.json`
there. Before it takes times it waits for its turn, tells so by its stage, and waits until all other jobs are stopped.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

DONE = "done"
"""The stage of a job that went all the way."""

TIMED = ("alone", "compare", "profile")
"""The stages in which a job has the machine for itself; in the first of them it waits for that."""

REPORT = Path("report.json")

_ERRORS = Path("errors.txt")
_STOPPED = Path("stopped_s.txt")
_ALONE = Path("alone")
_TURN = Path("../turn.lock")
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_STILL = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_POLL_S = 0.2
_WORDS = 300
"""The most characters of a reason."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """What a job may take, with all processes that it starts.

    Attributes:
        seconds: the time until it ends; that in which it is stopped does not count.
        gigabytes: memory.
    """

    seconds: float
    gigabytes: float


def run_jobs(commands: Iterable[tuple[str, Sequence[str]]], n_jobs: int, limits: Limits) -> Iterator[tuple[str, Row]]:
    """Runs commands, and yields the name and the columns of each when it ends; close it to end those that run.

    Args:
        commands: the name and the words of each.
        n_jobs: how many run at once.
        limits: those of each.

    Raises:
        SystemExit: a signal asked for an end. No job is left, stopped or not.
    """
    waiting, running = deque(commands), dict[str, Job]()
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder, _signals() as seen:
        try:
            while waiting or running:
                is_timed = _one_alone(running.values())
                while waiting and len(running) < n_jobs and not is_timed:
                    name, command = waiting.popleft()
                    running[name] = Job(command, Path(tempfile.mkdtemp(dir=folder)), limits)
                time.sleep(_POLL_S)
                if seen:
                    raise SystemExit(128 + seen[0])
                for name in [name for name, job in running.items() if job.has_ended()]:
                    yield name, running.pop(name).row()
        finally:
            for job in running.values():
                job.end()


def _one_alone(jobs: Collection[Job]) -> bool:
    """Stops all jobs but the one that takes times, and then lets it begin; returns whether there is one."""
    timed = next((job for job in jobs if job.takes_times()), None)
    others = [job for job in jobs if job is not timed]
    if timed is None:
        for job in others:
            job.go_on()
    elif all([job.stop() for job in others]):
        timed.begin_times()
    return timed is not None


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects the signals that ask for an end, so that none comes between the start of a process and its record."""
    seen: list[int] = []
    heard = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: seen.append(number)) for number in heard}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Job:
    """A command that runs, with all processes that it starts.

    Args:
        command: its words.
        folder: its own folder.
        limits: beyond these it is ended.
    """

    def __init__(self, command: Sequence[str], folder: Path, limits: Limits) -> None:
        self._folder, self._limits = folder, limits
        self._began_s, self._stopped_s = time.monotonic(), 0.0
        self._stopped_at_s: float | None = None
        self._is_still = False
        self._reason: str | None = None
        paths = [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)),
            # The limit of a stage would count the time in which it is stopped.
            "ANOLE_MODEL_LIMIT_S": str(1000 * limits.seconds),
        }
        with (folder / _ERRORS).open("wb") as errors:
            self._process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=errors, stderr=errors, start_new_session=True
            )

    def has_ended(self) -> bool:
        """Returns whether it ended, by itself or because it is beyond a limit; then none of its processes is left."""
        if self._process.poll() is None:
            if self._seconds() > self._limits.seconds:
                self._reason = f"it took more than {self._limits.seconds:g} s"
            elif not self._is_still and memory_bytes(self._process.pid) > self._limits.gigabytes * 1e9:
                self._reason = f"it took more than {self._limits.gigabytes:.3g} GB of memory"
            else:
                return False
        elif self._process.returncode < 0:
            self._reason = f"it was ended by {signal.Signals(-self._process.returncode).name}"
        self.end()
        return True

    def takes_times(self) -> bool:
        """Returns whether it must have the machine for itself."""
        return self._report()["stage"] in TIMED

    def stop(self) -> bool:
        """Stops its processes; returns whether all stand still. Otherwise, call it again."""
        if self._stopped_at_s is None:
            self._stopped_at_s = time.monotonic()
        if not self._is_still:
            _signal(self._process.pid, signal.SIGSTOP)
            self._is_still = all(_status(each) in _STILL for each in descendants(self._process.pid))
        return self._is_still

    def go_on(self) -> None:
        """Lets it run if it is stopped."""
        if self._stopped_at_s is not None:
            self._stopped_s += time.monotonic() - self._stopped_at_s
            _replace(self._folder / _STOPPED, str(self._stopped_s))
            self._stopped_at_s, self._is_still = None, False
            _signal(self._process.pid, signal.SIGCONT)

    def begin_times(self) -> None:
        """Lets it take times: all others are stopped."""
        (self._folder / _ALONE).touch()

    def end(self) -> None:
        """Ends its processes, also those that are stopped."""
        _signal(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def row(self) -> Row:
        """Returns what it reported until it ended, and why it ended; removes its folder."""
        row = self._report()
        if row["stage"] != DONE and not row.get("reason"):
            lines = (self._folder / _ERRORS).read_text(errors="replace").strip().splitlines()
            row["reason"] = shown(self._reason or (lines[-1] if lines else "it ended without a reason"))
        shutil.rmtree(self._folder, ignore_errors=True)
        return row

    def _report(self) -> Row:
        try:
            row: Row = json.loads((self._folder / REPORT).read_text())
        except FileNotFoundError:
            return {"stage": "start"}
        return row

    def _seconds(self) -> float:
        until_s = time.monotonic() if self._stopped_at_s is None else self._stopped_at_s
        return until_s - self._began_s - self._stopped_s


@contextmanager
def turn() -> Iterator[None]:
    """Holds the only turn at taking times; called within a job."""
    with _TURN.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def wait_until_alone() -> None:
    """Waits until all other jobs are stopped; called within a job whose report has one of the stages `TIMED`."""
    while not _ALONE.exists():
        time.sleep(_POLL_S / 10)


def running_s() -> float:
    """Returns the seconds of a clock that stands still while the job that calls it is stopped."""
    stopped_s = float(_STOPPED.read_text()) if _STOPPED.exists() else 0.0
    return time.monotonic() - stopped_s


def write_report(path: Path, row: Row) -> None:
    """Replaces a job's report."""
    _replace(path, json.dumps(row))


def _replace(path: Path, text: str) -> None:
    """Replaces a file as a whole: another process may be reading it."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def memory_bytes(pid: int) -> int:
    """Returns the memory that a process and its descendants have together."""
    total = 0
    for process in descendants(pid):
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def descendants(pid: int) -> list[psutil.Process]:
    """Returns a process and all that it started and that still run; none if it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.Error:
        return psutil.STATUS_DEAD


def _signal(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process, to its descendants, which may have groups of their own, and to its group."""
    sends: list[tuple[Callable[[int, int], None], int]] = [(os.kill, each.pid) for each in descendants(pid)]
    for send, whom in (*sends, (os.killpg, pid)):
        with suppress(ProcessLookupError):
            send(whom, number)


def shown(reason: str) -> str:
    """Returns a reason on one line, and not longer than a line may be."""
    line = " ".join(reason.split())
    return line if len(line) <= _WORDS else line[: _WORDS - 3] + "..."
