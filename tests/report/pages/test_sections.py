"""Every section shows what the database holds: its queries run again, and its figures are those of the records."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from math import log
from pathlib import Path
from statistics import fmean

import pytest

from anole.documents import layout
from anole.errors import StoreError
from anole.report.pages.bootstrap import mean_interval
from anole.report.pages.charts import stacked_bars
from anole.report.pages.database import Database
from anole.report.pages.figure import Figure
from anole.report.pages.sections import all_sections

from ...record_project import Project
from .conftest import HOSTILE, SLOWNESS, figure, lacking, section, source_of

KEYS = [each.key for each in all_sections()]
FILLED_BY = {"utilisation": "npu_project", "geometry": "npu_project"}
"""The project that has data for a section; the others are filled by `recorded`."""


def project_for(request: pytest.FixtureRequest, key: str) -> Path:
    project: Path = request.getfixturevalue(FILLED_BY.get(key, "recorded"))
    return project


@pytest.mark.parametrize("key", KEYS)
def test_a_section_shows_rows_and_its_queries_give_them_again(request: pytest.FixtureRequest, key: str) -> None:
    project = project_for(request, key)
    with source_of(project) as source:
        figures = [each for each in section(source, key) if isinstance(each, Figure)]
    assert figures
    connection = sqlite3.connect(project / layout.DATABASE)
    for each in figures:
        assert each.n and each.method and each.units and each.queries
        assert (each.table is not None and each.table.rows) or each.chart is not None
        for query in each.queries:
            assert tuple(connection.execute(query.sql).fetchall()) == query.rows and query.rows
        if each.table is not None:
            assert all(len(row) == len(each.table.columns) for row in each.table.rows)
    connection.close()


@pytest.mark.parametrize("key", [key for key in KEYS if key != "held-back"])
def test_a_section_without_data_says_what_would_fill_it(tmp_path: Path, key: str) -> None:
    Project(tmp_path).merge()
    with source_of(tmp_path) as source:
        shown = section(source, key)
    assert shown and all(not isinstance(each, Figure) and each.remedy.endswith(".") for each in shown)


def test_speedups_and_latencies_are_those_of_the_evaluations(recorded: Path) -> None:
    with source_of(recorded) as source:
        table = figure(source, "builds", "Latency and accuracy").table
        speedups = figure(source, "builds", "Speedup")
    assert table is not None
    assert (
        *("resnet18-cpu", "17.0 ± 0.10", "torch", "24.4 ± 0.20", "1.44x", "1.41x to 1.48x", "4.0e-06"),
    ) in table.rows
    assert {row[0] for row in table.rows} == {"resnet18-cpu", "resnet34-cpu", f"{HOSTILE}-cpu"}
    assert speedups.chart is not None
    (point,) = (
        each
        for each in speedups.chart["data"]["values"]
        if (each["build"], each["reference"]) == ("resnet18-cpu", "torch")
    )
    assert point["speedup"] == pytest.approx(0.0244 / 0.017)
    assert (point["low"], point["high"]) == pytest.approx((0.98 * 0.0244 / 0.017, 1.03 * 0.0244 / 0.017))


def test_of_many_builds_the_picture_has_those_with_the_least_speedup(tmp_path: Path) -> None:
    project = Project(tmp_path)
    for number in range(45):
        project.extract(f"net{number:02}", [(project.CONV, 1)])
        project.compile(f"net{number:02}", [(project.CONV, 1, None)])
        project.evaluate(f"net{number:02}-cpu", latency_s=0.01 + 0.001 * number)
    project.merge()
    with source_of(tmp_path) as source:
        found = figure(source, "builds", "Speedup")
    assert found.chart is not None and found.n == "45 builds, 90 comparisons. The picture has 40 of 45."
    assert {value["build"] for value in found.chart["data"]["values"]} == {f"net{n:02}-cpu" for n in range(5, 45)}
    assert found.headline.startswith("Of 45 evaluated builds, 37 slower than a reference: net44-cpu (0.31x beside ")


def test_a_build_has_its_size_its_start_and_its_share(recorded: Path) -> None:
    with source_of(recorded) as source:
        table = figure(source, "builds", "Size").table
    assert table is not None
    rows = {row[0]: row for row in table.rows}
    assert rows["resnet18-cpu"][5:7] == ("0.123", "1,500")
    assert rows[f"{HOSTILE}-cpu"][4] == "0.0 %" and rows[f"{HOSTILE}-cpu"][6] == "-"


def test_latencies_under_load_are_percentiles(recorded: Path) -> None:
    with source_of(recorded) as source:
        found = figure(source, "load", "Latency")
    assert found.table is not None
    assert ("resnet18-cpu", "2", "build", "160", "200", "250", "48") in found.table.rows
    assert "0.38x over onnxruntime (n = 1)" in found.headline


def test_kernels_have_their_share_and_their_distance_from_the_roofline(recorded: Path) -> None:
    with source_of(recorded) as source:
        found = figure(source, "kernels", "Kernels")
        table, bars = found.table, found.chart
        roofline = figure(source, "kernels", "Roofline").chart
    assert table is not None and roofline is not None
    gflops = 4 * Project.CONV.workload.flop / 0.0085 / 1e9
    conv = ("resnet18-cpu", "conv0, conv1", Project.CONV.label)
    assert table.rows[0] == (*conv, "4", "8.50", "50.0 %", f"{gflops:.0f}", "21.8 %")
    assert gflops / 500 == pytest.approx(0.218, abs=1e-3)
    assert table.rows[2][1:5] == ("pool", "-", "1", "0.100")  # of 4 MB at 100 GB/s
    assert table.rows[2][7] == "40.0 %"
    points = [(point["layers"], point["kernel"]) for point in roofline["data"]["values"]]
    assert points == [("conv0, conv1", "fused_conv2d"), ("conv1", "fused_dense")]
    assert found.headline.startswith("The largest share of a network's time in one kernel is 50.0 %: conv0, conv1 of ")
    assert bars is not None and bars["encoding"]["x"]["scale"] == {"domain": [0, 1.0]}


def test_a_layer_of_two_tasks_counts_its_kernels_once(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.fill()
    project.merge()
    with sqlite3.connect(project.database) as connection:
        connection.execute('update model_task set layers = \'["conv0", "conv1"]\'')
    connection.close()
    with source_of(tmp_path) as source:
        table = figure(source, "kernels", "Kernels").table
    assert table is not None
    assert [row[1:3] for row in table.rows] == [
        ("conv0, conv1", Project.CONV.label),
        ("conv1", Project.DENSE.label),
        ("pool", "-"),
    ]


def test_bars_of_more_than_the_whole_network_fit_into_the_picture() -> None:
    values = [{"build": "net", "rank": str(number), "share": 0.75} for number in range(3)]
    picture = stacked_bars(values, "build", "share", "rank", "share of one run")
    assert picture["encoding"]["x"]["scale"] == {"domain": [0, 2.25]}


def test_untuned_tasks_have_a_reason_and_a_share(recorded: Path) -> None:
    with source_of(recorded) as source:
        table = figure(source, "held-back", "Tasks").table
    assert table is not None
    assert (f"{HOSTILE}-cpu", "no trial succeeded", "1", "100.0 %", Project.CONV.label) in table.rows


def test_curves_are_means_over_tasks_and_seeds(recorded: Path) -> None:
    with source_of(recorded) as source:
        query = figure(source, "curves", "Best config so far, over trials").queries[0]
        summary = figure(source, "curves", "What each preset").table
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
        assert each["speed"] == pytest.approx(fmean(by_seed.values()))
        assert (each["lowest_seed"], each["highest_seed"]) == pytest.approx(
            (min(by_seed.values()), max(by_seed.values()))
        )
        assert (each["seeds"], each["tasks"]) == (3, 4)
    trials = [each["trials"] for each in query.records() if each["preset"] == "anole"]
    assert trials[:4] == [1, 2, 3, 4] and trials[-1] == 21
    assert summary is not None
    assert ("anole", "4", "3", "12", "252", "4.8 %") in [row[:6] for row in summary.rows]


def test_curves_over_seconds_end_at_the_best(recorded: Path) -> None:
    with source_of(recorded) as source:
        trials, seconds = (
            figure(source, "curves", f"Best config so far, over {name}").queries[0].records()
            for name in ("trials", "seconds")
        )
    for preset in SLOWNESS:
        ends = [[row for row in rows if row["preset"] == preset][-1] for rows in (trials, seconds)]
        assert ends[0]["speed"] == pytest.approx(ends[1]["speed"])
        assert ends[1]["seconds"] == pytest.approx(21 * 0.35)


def test_presets_are_compared_on_common_tasks_and_seeds(recorded: Path) -> None:
    with source_of(recorded) as source:
        found = figure(source, "tuners", "Tuners compared")
    assert found.table is not None and found.chart is not None
    rows = {row[0]: row for row in found.table.rows}
    assert rows["anole / chameleon"][3:] == ("4", "12", "21", "0")
    points = {point["pair"]: point for point in found.chart["data"]["values"]}
    point = points["anole / chameleon"]
    assert point["low"] <= point["ratio"] <= point["high"] and point["ratio"] == pytest.approx(1.3, rel=0.1)
    assert point["verdict"] == "anole is better"
    assert points["autotvm / random"]["verdict"] == "too few to tell" and rows["autotvm / random"][2] == "-"
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


def test_failures_are_counted_by_reason(recorded: Path) -> None:
    with source_of(recorded) as source:
        reasons = figure(source, "failures", "Failures by reason")
        outcomes = figure(source, "failures", "Outcomes").queries[0].records()
    assert reasons.table is not None
    # One of 21 trials of each of 36 runs fails, and five of those that every project has.
    assert reasons.table.rows[0][:3] == ("run_error", "Segmentation fault", "41")
    shares = {(row["preset"], row["status"]): row["share"] for row in outcomes}
    assert shares["anole", "run_error"] == pytest.approx(1 / 21) and shares["dcoc", "ok"] == 1


def test_batches_are_as_large_as_they_were(recorded: Path) -> None:
    with source_of(recorded) as source:
        rows = figure(source, "batches", "Batch sizes").queries[0].records()
    anole = [row for row in rows if row["tuner"] == "anole"]
    assert [row["mean_size"] for row in anole] == [4, 4, 4, 4, 4, 1]
    assert {row["batches"] for row in anole} == {12}


def test_predictions_are_beside_what_was_measured(recorded: Path) -> None:
    with source_of(recorded) as source:
        (row,) = figure(source, "predictions", "Predicted beside measured").queries[0].records()
    assert row["tuner"].startswith("dcoc") and (row["iteration"], row["batches"]) == (0, 2)
    assert (row["low_correlation"], row["median_correlation"], row["high_correlation"]) == (0.4, 0.4, 0.8)


def test_a_missing_table_is_told_with_its_remedy(recorded: Path, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.merge()
    connection = sqlite3.connect(project.database)
    connection.executescript("drop table kernel_latency; drop table kernel_profile")
    connection.close()
    with source_of(tmp_path) as source:
        remedy = lacking(source, "kernels", "Where")
    assert "no such table: kernel_latency" in remedy or "no such table: kernel_profile" in remedy
    assert "`anole merge` brings an older database up to date" in remedy


def test_the_database_is_not_written(recorded: Path) -> None:
    with (
        Database(recorded / layout.DATABASE) as database,
        pytest.raises(StoreError, match="attempt to write a readonly"),
    ):
        database.query("delete from trial")


def test_a_query_has_an_end(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anole.report.pages.database._LIMIT_S", 0.05)
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    with Database(recorded / layout.DATABASE) as database, pytest.raises(StoreError, match=r"more than 0\.05 s"):
        database.query(endless)


@pytest.mark.parametrize("content", [None, b"no database"])
def test_what_is_no_database_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tuning.sqlite"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError, match=r"tuning\.sqlite: "), Database(path) as database:
        database.query("select * from trial")
