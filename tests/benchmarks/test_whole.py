"""`make bench-gpu` does all of its steps on an emulated GPU, and repeats none that is complete."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.search.tuners_raw import TRIALS, read
from tests.kit.emulated_gpu.machine import absence, environment

WHOLE = "benchmarks.gpu.whole"


def run(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        WHOLE,
        "--target",
        "cuda",
        "--folder",
        str(folder),
        "--minutes",
        "9",
        "--self-test",
    ]
    made = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr


@pytest.mark.skipif(absence() is not None, reason=str(absence()))
def test_the_whole_command_on_an_emulated_gpu(tmp_path: Path) -> None:
    run(tmp_path)
    launched, *_ = csv.DictReader((tmp_path / "launches.csv").open())
    assert (launched["configs"], launched["ok"]) == ("2", "2")
    (network,) = csv.DictReader((tmp_path / "networks.csv").open())
    assert (network["network"], network["engine"], network["trials"]) == ("squeezenet1_1", "anole", "2")
    trials = read(tmp_path / TRIALS)
    assert {variant: sum(row["variant"] == variant for row in trials) for variant in ("random", "anole")} == {
        "random": 20,
        "anole": 20,
    }
    assert (tmp_path / "tuners_by_trials.svg").stat().st_size > 0
    measured = {path: path.read_bytes() for path in tmp_path.glob("*.csv*")}

    run(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.glob("*.csv*")} == measured


def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", WHOLE, "--target", "cuda", "--folder", str(tmp_path / "results")]
    made = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert made.returncode != 0
    assert "cannot measure on this machine: " in made.stderr
    assert not (tmp_path / "results").exists()
