"""Experiments continue where they stopped, and rows of other versions are replaced."""

import csv
import time

import pytest

from benchmarks.common.rows import read_rows
from benchmarks.search.experiment import Experiment, run_experiment

FOREVER = float("inf")


def square(job):
    if job[0] == "3":
        raise ValueError("three is not squared")
    return [{"square": int(job[0]) ** 2}, {"square": -(int(job[0]) ** 2)}]


def slow(job):
    time.sleep(0.3)
    return [{"square": 0}]


def experiment_of(numbers, version="1", run=square, **options):
    return Experiment(
        "squares",
        ("number", "version"),
        ("square",),
        lambda: [(str(number), version) for number in numbers],
        run,
        **options,
    )


def read_cells(path):
    return sorted((row["number"], int(row["square"])) for row in read_rows(path))


@pytest.mark.parametrize("suffix", [".csv", ".csv.xz"])
def test_each_job_appends_its_rows_once(tmp_path, suffix):
    path = tmp_path / f"results/squares{suffix}"
    assert run_experiment(experiment_of([1, 2, 2]), path, FOREVER, processes=2)
    assert read_cells(path) == [("1", -1), ("1", 1), ("2", -4), ("2", 4)]
    before = path.read_bytes()
    assert run_experiment(experiment_of([1, 2]), path, FOREVER)
    assert path.read_bytes() == before
    assert run_experiment(experiment_of([1, 2, 4]), path, FOREVER)
    assert path.read_bytes().startswith(before[:4]) and len(read_cells(path)) == 6


def test_rows_of_another_version_are_replaced_and_others_stay(tmp_path, caplog):
    """Number 1 is no longer a job, like networks that were built on another machine."""
    caplog.set_level("INFO")
    path = tmp_path / "squares.csv"
    run_experiment(experiment_of([1, 2]), path, FOREVER)
    assert run_experiment(experiment_of([2], version="2"), path, FOREVER)
    assert [(row["number"], row["version"]) for row in read_rows(path)] == [("1", "1")] * 2 + [("2", "2")] * 2
    assert "2 rows are outdated" in caplog.text


def test_rows_with_other_columns_are_replaced(tmp_path):
    path = tmp_path / "squares.csv"
    path.write_text("number,cube\r\n1,1\r\n")
    assert run_experiment(experiment_of([1]), path, FOREVER)
    assert read_cells(path) == [("1", -1), ("1", 1)]


def test_rows_without_a_new_column_stay(tmp_path):
    path = tmp_path / "squares.csv"
    path.write_text("number,version\r\n1,1\r\n")
    assert run_experiment(experiment_of([1, 2]), path, FOREVER)
    assert [row["square"] for row in read_rows(path)] == ["", "4", "-4"]


def test_a_failed_job_is_logged_and_others_still_run(tmp_path, caplog):
    path = tmp_path / "squares.csv"
    assert not run_experiment(experiment_of([1, 3, 4]), path, FOREVER)
    assert read_cells(path) == [("1", -1), ("1", 1), ("4", -16), ("4", 16)]
    assert "squares: 3, 1 failed: ValueError: three is not squared" in caplog.text


def test_no_job_starts_when_the_time_is_up(tmp_path):
    path = tmp_path / "squares.csv"
    assert not run_experiment(experiment_of(range(50), run=slow), path, time.monotonic() + 0.5)
    assert 1 <= len(read_rows(path)) < 50
    assert not run_experiment(experiment_of(range(50), run=slow), path, time.monotonic())
    with path.open(newline="") as file:
        assert next(csv.reader(file)) == ["number", "version", "square"]


def test_timed_jobs_run_alone(tmp_path):
    began_s = time.monotonic()
    run_experiment(experiment_of(range(3), run=slow, is_timed=True), tmp_path / "squares.csv", FOREVER, processes=3)
    assert time.monotonic() - began_s >= 0.9


def test_only_jobs_with_given_keys_run_and_other_rows_stay(tmp_path):
    path = tmp_path / "squares.csv"
    run_experiment(experiment_of([1, 2]), path, FOREVER)
    assert not run_experiment(experiment_of([1, 2, 4, 5]), path, FOREVER, only=["4"])
    assert {row["number"] for row in read_rows(path)} == {"1", "2", "4"}
