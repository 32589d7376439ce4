"""The report's sections about accelerators, on recorded searches and a real build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from anole_vta.network.artifact import load_programs
from anole_vta.report import utilization
from anole_vta.simulator.timing import simulate

from ..report.pages.conftest import FRONT, advice, figure, npu_project, old_project, open_source, recorded

__all__ = ["npu_project", "old_project", "recorded"]


def test_an_explored_front_is_shown_with_its_knees(recorded: Path, tmp_path: Path) -> None:
    with open_source(recorded) as source:
        found = figure(source, "fronts", "Front of time, area and energy: edge")
        broken = tmp_path / "accelerators/edge/front.csv"
        broken.parent.mkdir(parents=True)
        broken.write_text("network,area\nnet,1\n")
        assert "broken" in advice(replace(source, project=tmp_path), "fronts", "Front of time, area and energy: edge")
    assert found.table is not None and found.chart is not None
    assert [row[:2] + row[3:] for row in found.table.rows] == [
        ("net", "time x area", "1.40x", "29.4", "1.10", "RTL"),
        ("all networks", "time x area x energy", "1.40x", "99.4", "1.20", "RTL"),
    ]
    assert [each["latency_ms"] for each in found.chart["data"]["values"]] == [70.1, 29.4, 99.4]
    assert found.downloads[0].text == FRONT


def test_an_accelerator_of_an_old_build_is_shown(old_project: Path) -> None:
    with open_source(old_project) as source:
        candidates = figure(source, "fronts", "Geometries")
        chosen = figure(source, "geometry", "Chosen")
        used = figure(source, "utilization", "Utilization")
    assert len(candidates.queries[0].rows) == 7
    assert chosen.downloads[0].name == "residual-accelerator-dcoc.vta_config.json"
    assert '"LOG_BLOCK": 4' in chosen.downloads[0].text
    # Its folder has no streams, so only cycles are known.
    assert used.chart is None and used.table is not None and {row[-1] for row in used.table.rows} == {"-"}


def test_the_utilization_of_a_build_matches_its_report(npu_project: Path) -> None:
    with open_source(npu_project) as source:
        table = figure(source, "utilization", "Utilization").table
        geometry = figure(source, "geometry", "Chosen")
    programs = load_programs(npu_project / "builds/net-npu")
    assert table is not None and len(table.rows) > 3
    for build, layer, cycles, instructions, *shares in table.rows:
        program = programs[layer]
        used = utilization(program, simulate(program.instructions, program.geometry))
        assert (build, cycles, instructions) == ("net-npu", f"{used.cycles:,}", f"{len(program.instructions):,}")
        expected = [used.busy[name] / used.cycles for name in ("load", "compute", "store")]
        assert shares == [f"{100 * share:.1f} %" for share in (*expected, used.gemm_share)]
    assert '"LOG_BLOCK_IN": 4' in geometry.downloads[0].text


def test_an_accelerator_that_is_not_searched_has_no_front(npu_project: Path) -> None:
    with open_source(npu_project) as source:
        assert "`hardware: search`" in advice(source, "fronts", "Geometries")
        assert "`accelerators`" in advice(source, "fronts", "Front of time")
