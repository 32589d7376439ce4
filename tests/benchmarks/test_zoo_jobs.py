"""Jobs of the zoo: what limits end, what is reported, who is stopped while times are taken, and what a signal ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from benchmarks.zoo.jobs import DONE, Job, Limits, Row, run_jobs, shown

from ..tiny_builds import HOME

MUCH_S, MUCH_GB = 600.0, 1000.0
MUCH = Limits(MUCH_S, MUCH_GB)

TICK = """
import os, sys, time
while True:
    with open(sys.argv[1], "a") as file:
        print(time.monotonic(), file=file)
    if os.path.exists(f"{sys.argv[1]}.end"):
        break
    time.sleep(0.01)
"""
"""Writes the time again and again into a file, until there is one of that name with ``.end``."""

TAKE_TIMES = """
import sys, time
from pathlib import Path
from benchmarks.zoo.jobs import REPORT, turn, wait_until_alone, write_report
with turn():
    write_report(REPORT, {"stage": "alone"})
    wait_until_alone()
    write_report(REPORT, {"stage": "compare"})
    began_s = time.monotonic()
    time.sleep(0.6)
    ended_s = time.monotonic()
write_report(REPORT, {"stage": "done", "began_s": began_s, "ended_s": ended_s})
"""


def python(text: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", text, *arguments]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def outcome(text: str, seconds: float = MUCH_S, gigabytes: float = MUCH_GB) -> Row:
    """Returns the columns of a job that runs Python."""
    ((_, row),) = run_jobs([("any", python(text))], 1, Limits(seconds, gigabytes))
    return row


def test_a_reason_fits_a_line() -> None:
    assert shown("one\n  two") == "one two"
    assert len(shown("word " * 1000)) == 300


def test_what_was_reported_before_the_end_is_kept() -> None:
    report = "import pathlib, sys; pathlib.Path('report.json').write_text('{%s}');"
    found = outcome(report % '"stage": "compile", "extracted": 1' + "sys.exit('the last words')")
    assert found == {"stage": "compile", "extracted": 1, "reason": "the last words"}
    assert outcome(report % f'"stage": "{DONE}"' + "print('well')") == {"stage": DONE}
    assert outcome("print('ill')") == {"stage": "start", "reason": "ill"}
    assert outcome("") == {"stage": "start", "reason": "it ended without a reason"}


def test_a_limit_of_time_ends_all_processes(tmp_path: Path) -> None:
    inner = f"p = subprocess.Popen({python(TICK, str(tmp_path / 'ticks'))}, start_new_session=True)"
    text = f"import subprocess; {inner}; open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); p.wait()"
    assert outcome(text, seconds=1.5)["reason"] == "it took more than 1.5 s"
    wait_for(lambda: is_gone(int((tmp_path / "pid").read_text())))


def test_a_limit_of_memory_and_a_crash_are_named() -> None:
    text = "import time; kept = bytearray(300_000_000); kept[::4096] = b'x' * len(kept[::4096]); time.sleep(600)"
    assert outcome(text, gigabytes=0.2)["reason"] == "it took more than 0.2 GB of memory"
    assert outcome("import os; os.abort()")["reason"] == "it was ended by SIGABRT"


def test_the_time_in_which_a_job_is_stopped_does_not_count(tmp_path: Path) -> None:
    job = Job(python(TICK, "ticks"), tmp_path, Limits(1.5, MUCH_GB))
    try:
        wait_for(job.stop)
        time.sleep(2)
        assert not job.has_ended()
        job.go_on()
        assert not job.has_ended() and float((tmp_path / "stopped_s.txt").read_text()) >= 2
        wait_for(job.has_ended)
    finally:
        job.end()
    assert job.row()["reason"] == "it took more than 1.5 s"


def test_nobody_else_runs_while_a_job_takes_times(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    start = f"import subprocess; inner = subprocess.Popen({python(TICK, str(inner))}, start_new_session=True)"
    wait = f"import os, time\nwhile not os.path.exists({str(inner)!r}): time.sleep(0.05)"
    commands = [("ticks", python(f"{start}\n{TICK}\ninner.wait()", str(outer)))]
    commands += [(name, python(f"{wait}\n{TAKE_TIMES}")) for name in ("one", "two")]
    rows: dict[str, Row] = {}
    for name, row in run_jobs(commands, 3, MUCH):
        rows[name] = row
        if {"one", "two"} == set(rows):
            for path in (outer, inner):
                path.with_suffix(".end").touch()
    turns = sorted((rows[name]["began_s"], rows[name]["ended_s"]) for name in ("one", "two"))
    assert turns[0][1] < turns[1][0]
    for path in (outer, inner):
        times_s = [float(line) for line in path.read_text().splitlines()]
        assert times_s[0] < turns[0][0] and turns[1][1] < times_s[-1]
        assert not [time_s for time_s in times_s for began_s, ended_s in turns if began_s < time_s < ended_s]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_jobs_and_those_that_are_stopped(tmp_path: Path, number: signal.Signals) -> None:
    ticks = [tmp_path / "one", tmp_path / "two"]
    commands = [(path.name, python(TICK, str(path))) for path in ticks]
    commands.append(("times", python(TAKE_TIMES.replace("0.6", "600"))))
    # A shell that starts the tests in the background has them ignore SIGINT.
    heard = f"import signal\nsignal.signal({number:d}, signal.SIG_DFL)"
    sweep = f"{heard}\nfrom benchmarks.zoo.jobs import *\nfor _ in run_jobs({commands}, 3, Limits(600, 1000)): pass"
    paths = {"PYTHONPATH": os.pathsep.join([str(HOME), str(HOME / "lib")]), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(python(sweep), env={**os.environ, **paths})
    try:
        wait_for(lambda: any(tmp_path.glob("zoo-*/*/alone")))
        jobs = psutil.Process(process.pid).children(recursive=True)
        assert [job.status() for job in jobs].count(psutil.STATUS_STOPPED) == 2 and len(jobs) == 3
    finally:
        process.send_signal(number)
    assert process.wait() == 128 + number
    assert all(is_gone(job.pid) for job in jobs) and not list(tmp_path.glob("zoo-*"))
