"""Runs a command with limits of time and memory, and keeps what it had reported when it ended.

A command is a job. It works in a folder of its own, and writes the columns that are known so far to `report.json`.
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
"""The stage of a job that went all the way."""

COLUMNS = (
    *(
        "network",
        "source",
        "inputs",
        "code",
        "processor",
        "extracted",
        "compiled",
        "right",
        "relative_error",
        "output_variation",
    ),
    *("variation_error", "redrawn_error", "exact_error"),
    *("latency_ms", "onnxruntime_ms", "speedup", "speedup_q1", "speedup_q3"),
    *(
        "rounds",
        "extract_s",
        "extract_cpu_s",
        "compile_s",
        "evaluate_s",
        "slowest",
        "far",
        "uncaught",
        "stage",
        "reason",
    ),
)
"""What is known of a network."""

REPORT = Path("report.json")

_HOME = Path(__file__).parents[2]
_ERRORS = Path("errors.txt")
_POLL_S = 0.2
_WORDS = 300
"""The most characters of a reason."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """What a job may take, with all processes that it starts: seconds, and gigabytes of memory."""

    seconds: float
    gigabytes: float


def run_job(command: Sequence[str], limits: Limits) -> Row:
    """Run a command, and return what it reported until it ended, and why it ended; none of its processes is left."""
    with TemporaryDirectory(prefix="zoo-") as name:
        folder = Path(name)
        paths = [str(_HOME), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        own = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths)), "ANOLE_MODEL_LIMIT_S": str(limits.seconds)}
        with (folder / _ERRORS).open("wb") as errors:
            process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **own}, stdout=errors, stderr=errors, start_new_session=True
            )
        try:
            reason = _wait(process, limits)
        finally:
            _kill(process.pid)
            process.wait()
        return _reported(folder, reason)


def _wait(process: subprocess.Popen[bytes], limits: Limits) -> str | None:
    """Wait until a process ends, or is beyond a limit; returns why, unless it ended by itself."""
    ends_s = time.monotonic() + limits.seconds
    while process.poll() is None:
        if time.monotonic() > ends_s:
            return f"it took more than {limits.seconds:g} s"
        if memory_bytes(process.pid) > limits.gigabytes * 1e9:
            return f"it took more than {limits.gigabytes:.3g} GB of memory"
        time.sleep(_POLL_S)
    return f"it was ended by {signal.Signals(-process.returncode).name}" if process.returncode < 0 else None


def _reported(folder: Path, reason: str | None) -> Row:
    try:
        row: Row = json.loads((folder / REPORT).read_text())
    except FileNotFoundError:
        row = {"stage": "start"}
    if row["stage"] != DONE and not row.get("reason"):
        lines = (folder / _ERRORS).read_text(errors="replace").strip().splitlines()
        row["reason"] = shown(reason or (lines[-1] if lines else "it ended without a reason"))
    return row


def write_report(row: Row) -> None:
    """Replace the report of the job that calls it as a whole, since it may be ended at any time."""
    beside = REPORT.with_suffix(".new")
    beside.write_text(json.dumps({name: value for name, value in row.items() if name in COLUMNS}))
    beside.replace(REPORT)


def memory_bytes(pid: int) -> int:
    """Return the memory that a process and its descendants have together."""
    total = 0
    for process in descendants(pid):
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def descendants(pid: int) -> list[psutil.Process]:
    """Return a process and all that it started and that still run; none if it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _kill(pid: int) -> None:
    """End a process, its descendants, which may have groups of their own, and its group."""
    kills: list[tuple[Callable[[int, int], None], int]] = [(os.kill, each.pid) for each in descendants(pid)]
    for kill, whom in (*kills, (os.killpg, pid)):
        with suppress(ProcessLookupError):
            kill(whom, signal.SIGKILL)


def shown(reason: str) -> str:
    """Return a reason on one line, and not longer than a line may be."""
    line = " ".join(reason.split())
    return line if len(line) <= _WORDS else line[: _WORDS - 3] + "..."
