from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from anole.errors import StoreError
from anole.report.results import render_results

from ..record_project import Project


def shown(database: Path, width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(render_results(database))
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.fill()
    return project


def test_each_build_stands_beside_its_references(project: Project) -> None:
    project.evaluate("resnet18-cpu", 0.016)
    project.merge()
    blank, header, first, *_ = lines = shown(project.database, 200)
    assert (blank, header.split("  ")[0]) == ("", "build")
    assert [name.strip() for name in header.split("  ") if name] == ["build", "ms", "torch", "ONNX Runtime", "error"]
    rows = project.rows("select * from model_latency where build = 'resnet18-cpu' order by reference desc")
    beside = [f"{1e3 * row['reference_latency_s']:.1f} ({row['speedup']:.2f}x)" for row in rows]
    error = max(row["relative_error"] for row in rows)
    assert [cell.strip() for cell in first.split("  ") if cell] == [
        "builds/resnet18-cpu",
        "16.0",
        *beside,
        f"{error:.1e}",
    ]
    assert lines[-1].startswith("  anole run builds/resnet18-cpu --random ")


def test_at_80_columns_nothing_is_lost(project: Project) -> None:
    project.merge()
    wide, narrow = shown(project.database, 200), shown(project.database, 80)
    assert max(map(len, narrow)) <= 80
    assert "".join(wide).split() == "".join(narrow).split()


def test_without_latencies_there_is_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.merge()
    assert shown(project.database, 80) == []


def test_without_a_database_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        render_results(tmp_path / "tuning.sqlite")
