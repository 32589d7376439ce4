"""Jobs of the zoo: limits, reports and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.zoo.jobs import DONE, Limits, Row, run_job, shorten

from ..tiny_builds import HOME
from ..waiting import becomes_true, has_ended

SLEEP = "import time; time.sleep(600)"


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def starting(path: Path) -> str:
    """Return Python code that starts a process in a new group, writes its PID to a file, and waits for it."""
    start = f"process = subprocess.Popen({python(SLEEP)}, start_new_session=True)"
    return f"import subprocess; {start}; open({str(path)!r}, 'w').write(str(process.pid)); process.wait()"


def outcome(text: str, seconds: float = 600.0, gigabytes: float = 1000.0) -> Row:
    """Return the columns of a job that runs Python."""
    return run_job(python(text), Limits(seconds, gigabytes))


def test_a_reason_fits_a_line() -> None:
    assert shorten("one\n  two") == "one two"
    assert len(shorten("word " * 1000)) == 300


def test_the_last_report_before_the_end_is_kept() -> None:
    report = "import pathlib, sys; pathlib.Path('report.json').write_text('{%s}');"
    found = outcome(report % '"stage": "compile", "extracted": 1' + "sys.exit('the last words')")
    assert found == {"stage": "compile", "extracted": 1, "reason": "the last words"}
    assert outcome(report % f'"stage": "{DONE}"' + "print('well')") == {"stage": DONE}
    assert outcome("print('ill')") == {"stage": "start", "reason": "ill"}
    assert outcome("") == {"stage": "start", "reason": "it ended without a reason"}


def test_a_time_limit_kills_all_processes(tmp_path: Path) -> None:
    assert outcome(starting(tmp_path / "pid"), seconds=1.5)["reason"] == "it took more than 1.5 s"
    assert becomes_true(lambda: has_ended(int((tmp_path / "pid").read_text())), 30)


def test_a_memory_limit_and_a_crash_are_reported() -> None:
    text = "import time; kept = bytearray(300_000_000); kept[::4096] = b'x' * len(kept[::4096]); time.sleep(600)"
    assert outcome(text, gigabytes=0.2)["reason"] == "it took more than 0.2 GB of memory"
    assert outcome("import os; os.abort()")["reason"] == "it was ended by SIGABRT"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job_of_a_sweep(tmp_path: Path, number: signal.Signals) -> None:
    # A shell that starts the tests in the background makes them ignore SIGINT.
    heard = f"import signal, sys\nsignal.signal({number:d}, signal.default_int_handler)"
    working = f"from benchmarks.zoo import sweep\nrun = sweep.run_job\nwork = {python(starting(tmp_path / 'pid'))}"
    sweep = f"{heard}\n{working}\nsweep.run_job = lambda _, limits: run(work, limits)\nsweep.main()"
    paths = {"PYTHONPATH": os.pathsep.join([str(HOME), str(HOME / "lib")]), "TMPDIR": str(tmp_path)}
    command = [*python(sweep), str(tmp_path / "zoo.csv"), "--networks", "unet"]
    process = subprocess.Popen(command, env={**os.environ, **paths}, stderr=subprocess.DEVNULL)
    try:
        assert becomes_true((tmp_path / "pid").exists, 30)
        assert becomes_true(lambda: (tmp_path / "pid").read_text() != "", 30)
    finally:
        process.send_signal(number)
    assert process.wait() != 0
    assert becomes_true(lambda: has_ended(int((tmp_path / "pid").read_text())), 30)
    assert not list(tmp_path.glob("zoo-*"))
