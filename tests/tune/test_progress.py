"""The progress bar on terminals, and the intervals of log lines."""

from __future__ import annotations

import itertools
import logging
import os
import re
import subprocess
import sys
from contextlib import suppress
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import anole
from anole.tune import progress as module
from anole.tune.progress import Progress

from ..terminal import terminal_output_of

TUNING = """
from anole.tune.progress import Progress
with Progress("conv2d [64] 56x56", 64) as progress:
    for done in range(0, 65, 8):
        progress.update(done, 1.5 * done, done // 8)
"""


def run_on_a_terminal(script: str) -> str:
    """Run a script with a terminal as its standard error; return its output without control sequences."""
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI")},
        "PYTHONPATH": str(Path(anole.__file__).parents[1]),
        "TERM": "xterm",
        "COLUMNS": "120",
    }
    command = [sys.executable, "-c", script]
    shown = terminal_output_of(lambda terminal: subprocess.Popen(command, stderr=terminal, env=environment, text=True))
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)


def test_a_terminal_shows_a_bar() -> None:
    shown = run_on_a_terminal(TUNING)
    last = shown.strip().splitlines()[-1]
    assert re.search(r"conv2d \[64\] 56x56 ━+ 64/64 best 96.0 GFLOP/s, 8 failed, 0:00:00 left", last)


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of the log lines, which only moves when the test advances it."""
    caplog.set_level(logging.INFO)
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now_s)
    return clock


def test_log_lines_are_one_second_or_five_percent_of_the_time_apart(
    caplog: pytest.LogCaptureFixture, clock: SimpleNamespace
) -> None:
    with Progress("dense", 8000) as progress:
        for done in range(8001):
            progress.update(done, 2.0 * done, done // 2000)
            clock.now_s += 0.5
    lines = lines_of(caplog)
    counts = [int(line.split("/")[0].removeprefix("dense: ")) for line in lines]
    assert counts[:20] == list(range(0, 40, 2)) and counts[-1] == 8000
    late = [count for count in counts if count >= 40]
    assert all(after - before <= 0.06 * before + 1 for before, after in itertools.pairwise(late))
    assert len(lines) < 140
    assert all(line.endswith(" left") for line in lines[1:-1])
    assert lines[-1] == "dense: 8000/8000, best 16000.0 GFLOP/s, 4 failed"


DONE = "dense: 8/8, best 24.0 GFLOP/s, 0 failed"


@pytest.mark.parametrize(
    ("updates", "lines"),
    [
        pytest.param([(0, 0.0, 0), (8, 24.0, 0)], ["dense: 0/8", DONE], id="done immediately"),
        pytest.param([(8, 24.0, 0)], [DONE], id="done before"),
        pytest.param([(0, 0.0, 0), (0, 0.0, 0), (2, 0.0, 2)], ["dense: 0/8", "dense: 2/8, 2 failed"], id="failures"),
        pytest.param([(0, 0.0, 0), None], ["dense: 0/8"], id="failed before its first trial"),
        pytest.param([(0, 0.0, 0, inf), (2, 0.0, 2, 2)], ["dense: 0/8", "dense: 2/2, 2 failed"], id="few programs"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_the_first_and_the_last_line_show_the_state(
    caplog: pytest.LogCaptureFixture, clock: SimpleNamespace, updates: list[tuple[Any, ...] | None], lines: list[str]
) -> None:
    with suppress(KeyboardInterrupt), Progress("dense", 8) as progress:
        for update in updates:
            if update is None:
                raise KeyboardInterrupt
            progress.update(*update)
            clock.now_s += 60
    assert lines_of(caplog) == lines


def test_an_interrupted_stage_logs_its_last_state(caplog: pytest.LogCaptureFixture, clock: SimpleNamespace) -> None:
    with pytest.raises(KeyboardInterrupt), Progress("dense", 1000) as progress:
        progress.update(40, 10.0, 0)
        clock.now_s += 10
        progress.update(43, 12.0, 1)
        progress.update(44, 13.0, 1)
        raise KeyboardInterrupt
    first, middle, last = lines_of(caplog)
    assert first.startswith("dense: 40/1000, best 10.0 GFLOP/s, 0 failed")
    assert middle.startswith("dense: 43/1000, best 12.0 GFLOP/s, 1 failed")
    assert last.startswith("dense: 44/1000, best 13.0 GFLOP/s, 1 failed")
