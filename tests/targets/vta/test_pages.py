"""The report's sections about accelerators, on recorded searches and a real build."""

from __future__ import annotations

from pathlib import Path

import pytest

from anole.targets.vta.area import relative_area
from anole.targets.vta.geometry import Geometry
from anole.targets.vta.network.artifact import load_programs
from anole.targets.vta.pages.fronts import front
from anole.targets.vta.report import utilisation
from anole.targets.vta.simulator.timing import simulate

from ...report.pages.conftest import figure, lacking, npu_project, old_project, recorded, source_of

__all__ = ["npu_project", "old_project", "recorded"]


def test_a_front_holds_what_nothing_beats() -> None:
    assert front([(2.0, 5.0), (1.0, 9.0), (1.5, 9.0), (3.0, 4.0), (2.0, 6.0)]) == [(1.0, 9.0), (2.0, 5.0), (3.0, 4.0)]


def test_the_front_of_networks_is_that_of_their_layers(recorded: Path) -> None:
    with source_of(recorded) as source:
        found = figure(source, "fronts", "Front of cycles")
    assert found.table is not None and found.chart is not None
    areas = {
        (block, acc): round(relative_area(Geometry(block_in=block, block_out=block, acc_bytes=1 << acc)), 4)
        for block in (16, 32)
        for acc in (16, 17)
    }
    # In cycles at 100 MHz: layers of 1 and 2 ms with VTA's block, of half of that with a block of 32.
    large = {key: (1 + 3 * 2) * 1e5 * 16 / key[0] * (1.2 if key[1] == 16 else 1.0) for key in areas}
    expected = front((areas[key], large[key]) for key in areas)
    own = [row for row in found.table.rows if row[0] == "large on npu"]
    assert [row[2] for row in own] == [f"{cycles:,.0f}" for _, cycles in expected] and len(own) == 4
    values = found.chart["data"]["values"]
    together = [(each["area"], each["cycles"]) for each in values if each["network"] == "all networks"]
    assert [area for area, _ in together] == [area for area, _ in expected]
    assert [cycles for _, cycles in together] == pytest.approx([cycles / expected[-1][1] for _, cycles in expected])


def test_the_old_accelerator_is_told_as_it_was_searched(old_project: Path) -> None:
    with source_of(old_project) as source:
        candidates = figure(source, "fronts", "Geometries")
        chosen = figure(source, "geometry", "Chosen")
        used = figure(source, "utilisation", "Utilisation")
    assert len(candidates.queries[0].rows) == 7
    assert chosen.downloads[0].name == "residual-accelerator-dcoc.vta_config.json"
    assert '"LOG_BLOCK": 4' in chosen.downloads[0].text
    # Its folder has no streams, so only cycles are known.
    assert used.chart is None and used.table is not None and {row[-1] for row in used.table.rows} == {"-"}


def test_the_units_of_a_built_accelerator_are_as_busy_as_its_report_says(npu_project: Path) -> None:
    with source_of(npu_project) as source:
        table = figure(source, "utilisation", "Utilisation").table
        geometry = figure(source, "geometry", "Chosen")
    programs = load_programs(npu_project / "builds/net-npu")
    assert table is not None and len(table.rows) > 3
    for build, layer, cycles, instructions, *shares in table.rows:
        program = programs[layer]
        used = utilisation(program, simulate(program.instructions, program.geometry))
        assert (build, cycles, instructions) == ("net-npu", f"{used.cycles:,}", f"{len(program.instructions):,}")
        expected = [used.busy[name] / used.cycles for name in ("load", "compute", "store")]
        assert shares == [f"{100 * share:.1f} %" for share in (*expected, used.gemm_share)]
    assert '"LOG_BLOCK_IN": 4' in geometry.downloads[0].text


def test_an_accelerator_that_is_not_searched_has_no_front(npu_project: Path) -> None:
    with source_of(npu_project) as source:
        for title in ("Geometries", "Front"):
            assert "`hardware: search`" in lacking(source, "fronts", title)
