"""The cells of `make test-elsewhere` match their description, and failures are detected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import elsewhere
from .elsewhere import CELLS, CHECKOUT, Cell

TESTS = """
import os, pathlib

def test_this_is_another_machine():
    assert os.environ["TZ"] == "Asia/Kathmandu"
    assert (os.environ["NAMED"], os.environ["HOME"]) == ({folder!r}, {folder!r} + "/odd/home")
    assert len(os.sched_getaffinity(0)) == 1 and "ANOLE_CORES" not in os.environ

def test_that_fails():
    assert pathlib.Path.cwd().name == "another"

def test_that_is_skipped():
    import pytest; pytest.skip("reason")
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the checkout with its own tests and the current environment."""
    monkeypatch.setattr(elsewhere, "LOGS", tmp_path)
    monkeypatch.setenv("ANOLE_CORES", "7")
    folder = tmp_path / "an öle"
    (folder / "anole/tests").mkdir(parents=True)
    (folder / "anole/tests/test_it.py").write_text(TESTS.format(folder=str(folder)))
    (folder / "anole/.venv").symlink_to(sys.prefix)
    return folder


@pytest.mark.guard
def test_a_cell_matches_its_description_and_counts_failures(checkout: Path) -> None:
    odd = Cell("odd", "an odd one", {"TZ": "Asia/Kathmandu", "NAMED": "{folder}"}, core=True)
    outcome = elsewhere.run(odd, checkout, checkout / "anole/.venv")
    assert (outcome.status, outcome.counts) == (1, {"passed": 1, "failed": 1, "skipped": 1})
    assert str(outcome).startswith("FAILED: 1 passed, 1 failed, 1 skipped in ")
    assert "test_that_fails" in (checkout.parent / "odd.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("statuses", [(0, 0), (0, 1), (1, 0)])
def test_one_failing_cell_fails_all(
    checkout: Path, statuses: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    left = iter(statuses)
    monkeypatch.setattr(elsewhere, "LOGS", CHECKOUT / "logs/elsewhere")
    monkeypatch.setattr(elsewhere, "find_pythons", lambda: {"3.11": None, "3.12": Path(sys.executable)})
    monkeypatch.setattr(elsewhere, "copy_checkout", lambda folder: None)
    monkeypatch.setattr(elsewhere, "environment", lambda folder, version, python: folder)
    monkeypatch.setattr(elsewhere, "run", lambda cell, folder, venv: elsewhere.Outcome(next(left), 1.0))
    assert elsewhere.run_all(checkout, CELLS[1:3]) == max(statuses)
    output = capsys.readouterr().out
    assert "Python 3.11: skipped, found none" in output and output.count("Python 3.12") == 2


def test_files_of_cells_exist(tmp_path: Path) -> None:
    for cell in CELLS:
        files = [value.removeprefix("{folder}/anole/") for name, value in cell.variables.items() if "CPUINFO" in name]
        assert all((CHECKOUT / name).exists() for name in (*cell.tests, *files)), cell.name


def test_an_unknown_cell_is_rejected() -> None:
    command = [sys.executable, "-m", "tests.elsewhere", "moon"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 2 and "found moon; the cells are stranger, " in done.stderr
