from __future__ import annotations

import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anole
from anole.tune import progress as module
from anole.tune.progress import Progress

TUNING = """
from anole.tune.progress import Progress
with Progress("conv2d [64] 56x56", 64) as progress:
    for done in range(0, 65, 8):
        progress.update(done, 1.5 * done, done // 8)
"""


def watched_on_a_terminal(script: str) -> str:
    """Runs a script with a terminal as its standard error; returns what it drew, without colours."""
    master, slave = pty.openpty()
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI")},
        "PYTHONPATH": str(Path(anole.__file__).parents[1]),
        "TERM": "xterm",
        "COLUMNS": "120",
    }
    process = subprocess.Popen([sys.executable, "-c", script], stderr=slave, env=environment)
    os.close(slave)
    drawn = b""
    while True:
        try:
            drawn += os.read(master, 1 << 16)
        except OSError:
            break
    os.close(master)
    assert process.wait() == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode())


def test_on_a_terminal_a_bar_is_drawn() -> None:
    drawn = watched_on_a_terminal(TUNING)
    last = drawn.strip().splitlines()[-1]
    assert re.search(r"conv2d \[64\] 56x56 ━+ 64/64 best 96.0 GFLOP/s, 8 failed, 0:00:00 left", last)


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_in_a_log_there_is_a_line_at_first_at_last_and_at_every_tenth(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with Progress("dense", 200) as progress:
        for done in range(201):
            progress.update(done, 2.0 * done, done // 50)
    lines = lines_of(caplog)
    assert [line.split(",")[0] for line in lines] == [f"dense: {done}/200" for done in range(0, 201, 20)]
    assert lines[-1] == "dense: 200/200, best 400.0 GFLOP/s, 4 failed, 0:00:00 left"


def test_in_a_log_there_is_a_line_when_the_last_is_long_ago(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module, "_LOG_EVERY_S", 0.0)
    with Progress("dense", 1000) as progress:
        for done in range(5):
            progress.update(done, 0.0, done)
    assert len(lines_of(caplog)) == 5


def test_what_ends_early_is_told_as_it_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(KeyboardInterrupt), Progress("dense", 1000) as progress:
        progress.update(40, 10.0, 0)
        progress.update(43, 12.0, 1)
        raise KeyboardInterrupt
    first, last = lines_of(caplog)
    assert first == "dense: 40/1000, best 10.0 GFLOP/s, 0 failed, -:--:-- left"
    assert last.startswith("dense: 43/1000, best 12.0 GFLOP/s, 1 failed, ")


def test_nothing_is_told_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Progress("dense", 0):
        pass
    assert lines_of(caplog) == []
