"""Faults at every system call of appending, merging and importing lose no acknowledged trial, and are reported.

A command runs once to count its calls below the project's folder. Then it runs once for each call and each of the
call's faults: the errors of Linux, a full disk from then on, half a write, and the death of the process. After each,
acknowledged records exist, a failure was reported on one line with an exit status, and the same command without a
fault succeeds. By default, a sample of the cases runs; the slow tests run all of them.

The calls of the C library are interposed, see `system_calls.c`; strace repeats a few cases within the kernel.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from .scenarios import SCENARIOS, Recorded, Scenario, append_arguments, fill_both, shorten, try_all, verify
from .system_calls import ERRORS, Call, Driver, Ended, Fault, Kind, faults_of, run_under_strace, strace_works

T = TypeVar("T")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler (cc)")
needs_strace = pytest.mark.skipif(not strace_works(), reason="needs strace, and the right to trace")


def attempt(
    run: Callable[[list[str], Path], Ended], again: Driver, wanted: Scenario, before: Path, folder: Path
) -> str:
    """Run a scenario with a fault, and then without; return the problem, or an empty text."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(before, folder)
    ended = run(wanted.arguments(folder), folder)
    is_valid = ended.killed or ended.status == 0 or ended.is_reported
    if not is_valid or "Traceback" in ended.error:
        return f"ends with status {ended.status} and {shorten(ended.error)}"
    return verify(again, wanted, ended, folder)


def sample_evenly(cases: Sequence[T], most: int) -> list[T]:
    """Return evenly spread cases, including the first and the last."""
    if len(cases) <= most:
        return list(cases)
    return [cases[round(at * (len(cases) - 1) / (most - 1))] for at in range(most)]


@needs_compiler
@pytest.mark.parametrize("most", [20, pytest.param(None, marks=pytest.mark.slow, id="all")])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fault_at_a_call(driver: Driver, tmp_path: Path, name: str, most: int | None) -> None:
    clean = fill_both(driver, name, tmp_path)
    cases = [(fault, call) for call in clean.calls for fault in faults_of(call)]

    def problem(case: tuple[Fault, Call]) -> str:
        def run(arguments: list[str], place: Path) -> Ended:
            return driver.run(arguments, place, case[0])

        return attempt(run, driver, clean.scenario, tmp_path / "before", tmp_path / "now")

    def label(case: tuple[Fault, Call]) -> str:
        return f"{case[0]}, {case[1].name} {Path(case[1].path).name[-40:]}"

    try_all(f"{name}: {len(clean.calls)} calls", sample_evenly(cases, most or len(cases)), len(cases), problem, label)


@needs_strace
@pytest.mark.parametrize(
    ("name", "call", "number", "inject"),
    [
        ("append to nothing", "pwrite64", 3, "error=ENOSPC"),
        ("append to nothing", "fsync", 6, "error=EIO"),
        ("append after a truncated line", "pwrite64", 2, "signal=KILL"),
        ("merge again", "rename", 1, "error=EIO"),
        ("merge again", "pwrite64", 9, "error=ENOSPC"),
        ("import a folder", "openat", 9, "error=EMFILE"),
    ],
)
def test_a_fault_within_the_kernel(
    driver: Driver, tmp_path: Path, name: str, call: str, number: int, inject: str
) -> None:
    clean = fill_both(driver, name, tmp_path)
    tampered = trace(driver, clean, tmp_path, call, number, inject)
    assert tampered == 1, "no call failed"


@pytest.mark.slow
@needs_strace
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("inject", ["error=ENOSPC", "error=EIO", "signal=KILL"])
def test_a_fault_at_many_calls_within_the_kernel(driver: Driver, tmp_path: Path, name: str, inject: str) -> None:
    clean = fill_both(driver, name, tmp_path)
    for call in ("openat", "pwrite64", "write", "fsync", "fdatasync", "ftruncate", "rename", "unlink", "close"):
        number = 1
        while trace(driver, clean, tmp_path, call, number, inject):
            number += 1 + number // 4


def trace(driver: Driver, clean: Recorded, folder: Path, call: str, number: int, inject: str) -> int:
    """Assert that a scenario survives a fault that strace injects; return the number of affected calls."""
    tampered = 0

    def run(arguments: list[str], place: Path) -> Ended:
        nonlocal tampered
        names = {path.relative_to(each) for each in (folder / "before", folder / "after") for path in each.rglob("*")}
        names |= {Path("db/tuning.sqlite.tmp"), Path("db/tuning.sqlite.tmp-journal")}
        watched = [place / name for name in sorted(names)]
        ended, tampered = run_under_strace(arguments, place, watched, driver.scratch, call, number, inject)
        return ended

    problem = attempt(run, driver, clean.scenario, folder / "before", folder / "now")
    assert not problem, f"{inject} at {call} {number}: {problem}"
    return tampered


@needs_compiler
def test_injected_faults_have_an_effect(driver: Driver, tmp_path: Path) -> None:
    """Without this test, the others could pass because nothing ever failed."""
    clean = fill_both(driver, "append to nothing", tmp_path)
    write = next(call for call in clean.calls if call.name == "pwrite")
    for kind, message in ((Kind.FAIL, "No space left on device"), (Kind.KILL, "")):
        shutil.copytree(tmp_path / "before", tmp_path / "now")
        fault = Fault(write.number, kind, errno.ENOSPC)
        ended = driver.run(append_arguments(tmp_path / "now"), tmp_path / "now", fault)
        assert ended.killed if kind is Kind.KILL else (ended.is_reported and message in ended.error)
        shutil.rmtree(tmp_path / "now")
    assert {call.name for call in clean.calls} <= set(ERRORS)
