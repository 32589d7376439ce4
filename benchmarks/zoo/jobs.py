"""Run a command as a job with limits on time and memory, and read its latest report when it ends.

A job runs in its own folder, and writes the columns known so far to `report.json`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

DONE = "done"
"""The stage of a job that completed all stages."""

COLUMNS = tuple(
    """network source inputs code processor extracted compiled right relative_error output_variation variation_error
    redrawn_error exact_error latency_ms onnxruntime_ms speedup speedup_q1 speedup_q3 rounds extract_s extract_cpu_s
    compile_s evaluate_s slowest far uncaught stage reason""".split()
)
"""The columns of a network."""

REPORT = Path("report.json")

_HOME = Path(__file__).parents[2]
_ERRORS = Path("errors.txt")
_POLL_S = 0.2
_MAX_CHARACTERS = 300
"""The maximum number of characters in a reason."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """Limits for a job and all processes that it starts: seconds, and gigabytes of memory."""

    seconds: float
    gigabytes: float


def run_job(command: Sequence[str], limits: Limits) -> Row:
    """Run a command, and return its latest report, with the reason if it failed; kill its remaining processes."""
    with TemporaryDirectory(prefix="zoo-") as name:
        folder = Path(name)
        paths = [str(_HOME), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        added = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)), "ANOLE_MODEL_LIMIT_S": str(limits.seconds)}
        with (folder / _ERRORS).open("wb") as errors:
            process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **added}, stdout=errors, stderr=errors, start_new_session=True
            )
        try:
            reason = _wait(process, limits)
        finally:
            _kill(process.pid)
            process.wait()
        return _read_report(folder, reason)


def _wait(process: subprocess.Popen[bytes], limits: Limits) -> str | None:
    """Wait until a process ends or exceeds a limit; return the reason if it did not exit by itself."""
    ends_s = time.monotonic() + limits.seconds
    while process.poll() is None:
        if time.monotonic() > ends_s:
            return f"it took more than {limits.seconds:g} s"
        if memory_bytes(process.pid) > limits.gigabytes * 1e9:
            return f"it took more than {limits.gigabytes:.3g} GB of memory"
        time.sleep(_POLL_S)
    return f"it was ended by {signal.Signals(-process.returncode).name}" if process.returncode < 0 else None


def _read_report(folder: Path, reason: str | None) -> Row:
    try:
        row: Row = json.loads((folder / REPORT).read_text())
    except FileNotFoundError:
        row = {"stage": "start"}
    if row["stage"] != DONE and not row.get("reason"):
        lines = (folder / _ERRORS).read_text(errors="replace").strip().splitlines()
        row["reason"] = shorten(reason or (lines[-1] if lines else "it ended without a reason"))
    return row


def write_report(row: Row) -> None:
    """Replace the report of the calling job atomically, because the job may be killed at any time."""
    temporary = REPORT.with_suffix(".new")
    temporary.write_text(json.dumps({name: value for name, value in row.items() if name in COLUMNS}))
    temporary.replace(REPORT)


def memory_bytes(pid: int) -> int:
    """Return the total memory of a process and its descendants."""
    total = 0
    for process in descendants(pid):
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def descendants(pid: int) -> list[psutil.Process]:
    """Return a process and its running descendants; empty if it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _kill(pid: int) -> None:
    """Kill a process, its process group, and its descendants, which may be in other groups."""
    kills: list[tuple[Callable[[int, int], None], int]] = [(os.kill, process.pid) for process in descendants(pid)]
    for kill, number in (*kills, (os.killpg, pid)):
        with suppress(ProcessLookupError):
            kill(number, signal.SIGKILL)


def shorten(reason: str) -> str:
    """Return a reason as one line of at most `_MAX_CHARACTERS` characters."""
    line = " ".join(reason.split())
    return line if len(line) <= _MAX_CHARACTERS else line[: _MAX_CHARACTERS - 3] + "..."
