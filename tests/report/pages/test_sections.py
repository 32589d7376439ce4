"""Every section shows the content of the database: its queries are reproducible, and its figures are correct."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import log
from pathlib import Path
from statistics import fmean

import pytest

from anole.documents import layout
from anole.errors import StoreError
from anole.report.pages.database import Database
from anole.report.pages.figure import Figure, MissingData, Section, Shown
from anole.report.pages.preset_pairs import mean_interval
from anole.report.pages.report import all_sections, figures_of

from ...record_project import Project, execute
from .conftest import SLOWNESS, advice, figure, open_source, section

KEYS = [each.key for each in all_sections()]
FILLED_BY = {"fronts": "old_project", "utilization": "npu_project", "geometry": "npu_project"}
"""The project that has data for a section; the others are filled by `recorded`."""
RECORDED_TEXT = Path(__file__).with_name("recorded.txt")
"""The text of the sections for `recorded`. If the file is deleted, the next run writes it."""


def text_lines(section: Section, shown: Sequence[Shown]) -> Iterator[str]:
    """Yield the texts and tables of a section, and the first rows of charts without a table."""
    yield f"## {section.key}: {section.title}"
    for each in shown:
        if isinstance(each, MissingData):
            yield f"{each.title}: {each.remedy}"
            continue
        yield from filter(None, (each.title, each.units, each.n, each.method, each.headline))
        yield f"{[len(query.rows) for query in each.queries]} rows"
        if each.table is not None:
            yield from (" | ".join(row) for row in (each.table.columns, *each.table.rows))
        elif each.chart is not None:
            yield from (json.dumps(row) for row in each.chart["data"]["values"][:8])
    yield ""


def test_sections_match_the_recorded_text(recorded: Path) -> None:
    with open_source(recorded) as source:
        found = "\n".join(line for each in all_sections() for line in text_lines(each, figures_of(each, source)))
    if not RECORDED_TEXT.exists():
        RECORDED_TEXT.write_text(found, encoding="utf-8")
        pytest.fail(f"wrote {RECORDED_TEXT}")
    assert found.splitlines() == RECORDED_TEXT.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("key", [key for key in KEYS if key != "held_back"])
def test_a_section_shows_rows_and_its_queries_are_reproducible(request: pytest.FixtureRequest, key: str) -> None:
    project = request.getfixturevalue(FILLED_BY.get(key, "recorded"))
    with open_source(project) as source:
        figures = [each for each in section(source, key) if isinstance(each, Figure)]
    assert figures
    connection = sqlite3.connect(project / layout.DATABASE)
    for each in figures:
        assert each.n and each.method and each.units and each.queries
        assert (each.table is not None and each.table.rows) or each.chart is not None
        for query in each.queries:
            assert tuple(connection.execute(query.sql, defaultdict(lambda: None)).fetchall()) == query.rows
            assert query.rows
        if each.table is not None:
            assert all(len(row) == len(each.table.columns) for row in each.table.rows)
    connection.close()


def test_a_section_without_data_has_a_remedy(tmp_path: Path) -> None:
    Project(tmp_path).merge()
    with open_source(tmp_path) as source:
        for key in KEYS:
            shown = section(source, key)
            assert shown and all(isinstance(each, MissingData) and each.remedy.endswith(".") for each in shown), key


def test_a_layer_of_two_tasks_counts_its_kernels_once(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    project.merge()
    execute(project.database, 'update model_task set layers = \'["conv0", "conv1"]\'')
    with open_source(tmp_path) as source:
        table = figure(source, "slowest_kernels").table
    assert table is not None
    assert [row[1] for row in table.rows] == ["conv0, conv1", "conv1", "pool"]
    assert [row[2] for row in table.rows] == [Project.CONV.label, Project.DENSE.label, "-"]


def test_curves_are_means_over_tasks_and_seeds(recorded: Path) -> None:
    with open_source(recorded) as source:
        query = figure(source, "best_over_trials").queries[0]
    project = Project(recorded)
    project.database = recorded / layout.DATABASE
    rows = project.rows("select preset, seed, run.task_key, number, latency_s from trial join run on run.key = run_key")
    best: dict[str, float] = {}
    for row in rows:
        if row["latency_s"]:
            best[row["task_key"]] = min(row["latency_s"], best.get(row["task_key"], 1.0))
    for each in query.records():
        if each["preset"] not in SLOWNESS:
            continue
        by_seed = {}
        for seed in (10, 11, 12):
            own = [row for row in rows if (row["preset"], row["seed"]) == (each["preset"], seed)]
            so_far = {
                task: [row["latency_s"] for row in own if row["task_key"] == task and row["number"] < each["trials"]]
                for task in {row["task_key"] for row in own}
            }
            by_seed[seed] = fmean(
                best[task] / min(found) if (found := [each for each in latencies if each]) else 0.0
                for task, latencies in so_far.items()
            )
        expected = (fmean(by_seed.values()), min(by_seed.values()), max(by_seed.values()))
        assert (each["speed"], each["lowest_seed"], each["highest_seed"]) == pytest.approx(expected, abs=1e-4)
        assert (each["seeds"], each["tasks"]) == (3, 4)
    trials = [each["trials"] for each in query.records() if each["preset"] == "anole"]
    assert trials[:4] == [1, 2, 3, 4] and trials[-1] == 21


def test_curves_over_seconds_end_at_the_best(recorded: Path) -> None:
    with open_source(recorded) as source:
        trials, seconds = (figure(source, f"best_over_{name}").queries[0].records() for name in ("trials", "seconds"))
    for preset in SLOWNESS:
        ends = [[row for row in rows if row["preset"] == preset][-1] for rows in (trials, seconds)]
        assert ends[0]["speed"] == ends[1]["speed"]
        assert ends[1]["seconds"] == pytest.approx(21 * 0.35, abs=0.01)


def test_presets_are_compared_on_common_tasks_and_seeds(recorded: Path) -> None:
    with open_source(recorded) as source:
        found = figure(source, "preset_pairs")
    assert found.table is not None and found.chart is not None
    rows = {row[0]: row for row in found.table.rows}
    assert rows["anole / chameleon"][3:] == ("4", "12", "21", "0")
    points = {point["pair"]: point for point in found.chart["data"]["values"]}
    point = points["anole / chameleon"]
    assert point["low"] <= point["ratio"] <= point["high"] and point["ratio"] == pytest.approx(1.3, rel=0.1)
    assert point["verdict"] == "anole is better"
    assert points["autotvm / random"]["verdict"] == "too few tasks or pairs" and rows["autotvm / random"][2] == "-"
    records = [each for each in found.queries[0].records() if (each["one"], each["other"]) == ("anole", "chameleon")]
    assert log(point["ratio"]) == pytest.approx(
        fmean(log(each["other_latency_s"] / each["one_latency_s"]) for each in records)
    )


@pytest.mark.parametrize("groups", [[[0.1, 0.2, 0.3]] * 4, [[1.0], [2.0, 4.0], [0.0]]])
def test_an_interval_contains_the_mean_of_the_groups(groups: Sequence[Sequence[float]]) -> None:
    middle, low, high = mean_interval(groups)
    assert middle == pytest.approx(fmean(map(fmean, groups)))
    assert min(map(min, groups)) <= low < middle < high <= max(map(max, groups))


def test_an_interval_shrinks_with_more_groups() -> None:
    few, many = (mean_interval([[0.0], [1.0]] * count) for count in (3, 60))
    assert many[2] - many[1] < (few[2] - few[1]) / 3


def test_a_missing_table_is_reported_with_the_remedy(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.merge()
    execute(project.database, "drop table kernel_latency; drop table kernel_profile")
    with open_source(tmp_path) as source:
        remedy = advice(source, "slowest_kernels")
    assert "no such table: kernel_latency" in remedy or "no such table: kernel_profile" in remedy
    assert "`anole merge` updates a database of an older version" in remedy


def test_the_database_is_not_written(recorded: Path) -> None:
    with (
        Database(recorded / layout.DATABASE) as database,
        pytest.raises(StoreError, match="attempt to write a readonly"),
    ):
        database.query("delete from trial")


def test_a_query_has_a_time_limit(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anole.report.pages.database._LIMIT_S", 0.05)
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    with Database(recorded / layout.DATABASE) as database, pytest.raises(StoreError, match=r"more than 0\.05 s"):
        database.query(endless)


def test_a_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "tuning.sqlite"
    path.write_bytes(b"no database")
    with pytest.raises(StoreError, match=r"tuning\.sqlite: cannot be read: "), Database(path) as database:
        database.query("select * from trial")
