"""The progress view in this process. tests/workflow/test_progress_view.py runs it in Snakemake."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import RenderableType

from anole.documents.evaluation import read_evaluation, write_evaluation
from anole.report import progress_view as module
from anole.report.progress_view import ProgressView, render_results

from ..record_project import Project
from ..terminal import rendered


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[float]:
    """The time of the view's clock, in a folder without a database."""
    monkeypatch.chdir(tmp_path)
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def lines_of(shown: RenderableType, width: int) -> list[str]:
    text = rendered(shown, width, force_terminal=True, color_system=None)
    return [line.rstrip() for line in text.splitlines()]


def progress_lines(screen: ProgressView, width: int = 80) -> list[str]:
    return lines_of(screen.progress(), width)


def test_the_time_left_is_estimated_after_a_job_that_adds_none(now: list[float]) -> None:
    progress_view = ProgressView()
    progress_view.start(1, "extract", ["net", "cpu"], ["net.json"], [], adds_jobs=True)
    assert progress_lines(progress_view) == ["━" * 20, "extract net cpu"]
    now[0] += 100
    progress_view.finish(1)
    progress_view.advance(1, 5)
    progress_view.start(2, "compile", ["net-cpu"], ["net"], [])
    assert progress_lines(progress_view) == ["━" * 4 + " " * 17 + "1/5 jobs", "compile net-cpu"]
    now[0] += 20
    progress_view.advance(2, 5)
    assert "2/5 jobs, about 0:01:00 left" in progress_lines(progress_view)[0]
    now[0] += 25
    assert "about 0:00:35 left" in progress_lines(progress_view)[0]
    now[0] += 100
    assert progress_lines(progress_view)[0].endswith("2/5 jobs")


def test_messages_of_the_newest_jobs_are_below_the_progress(now: list[float], tmp_path: Path) -> None:
    progress_view = ProgressView()
    for number in range(5):
        log = tmp_path / f"{number}.log"
        progress_view.start(number, "tune", ["0" * 64], ["tuned.json"], [str(log)])
        if number < 4:
            log.write_text(f"12:00:00 conv2d {number}: 0/8\n12:00:01 conv2d {number}: 1/8\n12:00:02 warning: slow\n")
    assert progress_lines(progress_view)[1:] == ["tune conv2d 2: 1/8", "tune conv2d 3: 1/8", "tune"]
    assert progress_lines(progress_view, width=16)[-3:] == ["tune conv2d 2: …", "tune conv2d 3: …", "tune"]


def test_messages_are_shown_in_full(now: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    progress_view = ProgressView()
    progress_view.tell("a line of more than eighty characters " * 5 + "[bold]\nand another", logging.WARNING)
    progress_view.tell("", logging.INFO)
    progress_view.close()
    assert capsys.readouterr().err == "a line of more than eighty characters " * 5 + "[bold]\nand another\n"


def format_table(database: Path, width: int) -> list[str]:
    """Return the lines of the table of latencies."""
    return lines_of(render_results(database), width)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.fill()
    return project


def test_builds_are_compared_with_their_references(project: Project) -> None:
    project.evaluate("resnet18-cpu", 0.016, precision="int8")
    project.merge()
    blank, header, first, *_ = lines = format_table(project.database, 200)
    assert (blank, header.split("  ")[0]) == ("", "build")
    assert [name.strip() for name in header.split("  ") if name] == [
        "build",
        "in",
        "ms",
        "torch",
        "ONNX Runtime",
        "error",
    ]
    rows = project.rows("select * from model_latency where build = 'resnet18-cpu' order by reference desc")
    comparisons = [f"{1e3 * row['reference_latency_s']:.1f} float32 ({row['speedup']:.2f}x)" for row in rows]
    error = max(row["relative_error"] for row in rows)
    assert [cell.strip() for cell in first.split("  ") if cell] == [
        *("builds/resnet18-cpu", "int8", "16.0"),
        *comparisons,
        f"{error:.1e}",
    ]
    assert lines[-1].startswith("  anole run builds/resnet18-cpu --random ")


def test_the_error_is_the_one_that_decided_and_a_reference_that_is_off_is_marked(project: Project) -> None:
    path = project.evaluate("resnet18-cpu")
    evaluation = read_evaluation(path)
    near, far = evaluation.latencies
    for exact_error, error in ((None, "4.0e-06"), (1e-6, "1.0e-06")):
        latencies = (near, replace(far, relative_error=0.034))
        write_evaluation(path, replace(evaluation, latencies=latencies, exact_error=exact_error))
        project.merge()
        line = next(line for line in format_table(project.database, 200) if "resnet18-cpu " in line)
        assert line.endswith(f"(1.44x)  17.0 (1.00x, off by 3.4e-02)  {error}")


def test_at_80_columns_nothing_is_lost(project: Project) -> None:
    project.merge()
    wide, small = format_table(project.database, 200), format_table(project.database, 80)
    assert max(map(len, small)) <= 80
    assert "".join(wide).split() == "".join(small).split()


def test_without_latencies_nothing_is_shown(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.merge()
    assert format_table(project.database, 80) == []
