"""Report section: the accelerators that builds were simulated on, and the Pareto fronts of each accelerator entry."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np

from anole.documents import layout
from anole.report.cookbook import read_chart
from anole.report.pages.figure import Download, Figure, MissingData, ReportSource, Section, Shown, Table, with_rows
from anole.text_format import milliseconds, pluralize, significant, times
from anole_vta.accelerator import FRONT
from anole_vta.accelerator.pareto import front_mask

_GEOMETRIES_SQL = """
select
    build.name as build,
    geometry.value -> '$.block' as block,
    geometry.value ->> '$.area' as area,
    geometry.value ->> '$.memory' as memory,
    geometry.value ->> '$.latency_s' as latency_s,
    build.manifest ->> '$.accelerator.frequency_mhz' as frequency_mhz
from build, json_each(build.manifest, '$.accelerator.candidates') as geometry
where geometry.type = 'object'
order by build.name, area, latency_s
"""

_HOW_TO_GET_GEOMETRIES = "add a build with `hardware: search` and enough trials to run all layers on a geometry."

_FRONT_TITLE = "Front of time, area and energy"


def make(source: ReportSource) -> list[Shown]:
    """Return a figure of the geometries that builds were simulated on, and one of each entry of `accelerators`."""
    paths = sorted((source.project / layout.ACCELERATORS).glob(f"*/{FRONT}"))
    missing = MissingData(_FRONT_TITLE, "add an entry to `accelerators` in models.yaml (docs/vta/accelerators.md).")
    return [_geometries_figure(source), *(map(_entry_figure, paths) if paths else (missing,))]


def _geometries_figure(source: ReportSource) -> Shown:
    title = "Geometries that an entire network was simulated on"
    query = source.database.query(_GEOMETRIES_SQL)
    if not query.rows:
        return MissingData(title, _HOW_TO_GET_GEOMETRIES)
    points = [
        {
            "area": row["area"],
            "cycles": row["latency_s"] * row["frequency_mhz"] * 1e6,
            "build": row["build"],
            "block": "x".join(map(str, json.loads(row["block"]))),
            "memory": row["memory"],
            "latency_s": row["latency_s"],
        }
        for row in query.records()
    ]
    builds = list(dict.fromkeys(point["build"] for point in points))
    for build in builds:
        build_points = [point for point in points if point["build"] == build]
        mask = front_mask(np.array([(point["area"], point["cycles"]) for point in build_points]))
        for point, is_on_front in zip(build_points, mask.tolist(), strict=True):
            point["is_on_front"] = is_on_front
    optima = [point for point in points if point["is_on_front"]]
    rows = (
        (
            *(point["build"], point["block"], times(point["area"]), times(point["memory"])),
            f"{point['cycles']:,.0f}",
            milliseconds(point["latency_s"]),
        )
        for point in optima
    )
    return Figure(
        title,
        "cycles of all accelerator steps for one input, and area relative to VTA; lower is better for both.",
        f"{len(points)} geometries of {pluralize(len(builds), 'build')}; the table lists the {len(optima)} on a front.",
        "on each geometry, all layers were simulated, each with the config that is fastest on this geometry. The line "
        "is the Pareto front. Area is estimated from gate counts (docs/vta/accelerators.md).",
        (query,),
        Table.of(("build", "block", "area", "memory", "cycles", "ms"), rows),
        with_rows(read_chart(Path(__file__).with_name("geometries.json")), points),
    )


def _entry_figure(path: Path) -> Shown:
    """Return the figure of an accelerator's front.csv, or MissingData if the file is broken."""
    title = f"{_FRONT_TITLE}: {path.parent.name}"
    try:
        return _front_figure(title, path.parent.name, path.read_text(encoding="utf-8"))
    except (ValueError, LookupError, StopIteration):
        return MissingData(title, f"{path.name} is broken; `anole accelerator {path.parent.name}` writes it again.")


def _front_figure(title: str, name: str, text: str) -> Figure:
    rows = list(csv.DictReader(io.StringIO(text)))
    energy_column = next(column for column in rows[0] if "energy" in column)
    unit = "in millijoules" if energy_column == "energy_mj" else "relative to the lowest on each front"
    networks = {row["network"] for row in rows}
    points = [
        {
            **{column: float(row[column]) for column in ("area", "latency_ms")},
            **{column: row[column] for column in ("network", "accelerator", "block", "knee", "checked")},
            "energy": float(row[energy_column]),
        }
        for row in rows
    ]
    columns = ("network", "lowest", "accelerator", "area", "latency_ms", energy_column, "checked")
    lowest_products = (
        (
            *(row["network"], row["knee"], row["accelerator"], times(float(row["area"])), row["latency_ms"]),
            *(significant(float(row[energy_column])), row["checked"]),
        )
        for row in rows
        if row["knee"]
    )
    return Figure(
        title,
        f"milliseconds of all layers on the accelerator for one input, area relative to VTA, energy {unit}; "
        "lower is better for each.",
        f"{pluralize(len(rows), 'point')} on {pluralize(len(networks), 'front')}: {', '.join(sorted(networks))}.",
        "every program of every layer was simulated. At each point, all layers share one accelerator, and each runs "
        "its fastest program on it. No other accelerator dominates a point. Area is estimated from gate counts, and "
        "energy from accesses (docs/vta/accelerators.md); cycles not marked RTL are extrapolated.",
        (),
        Table.of(columns, lowest_products),
        with_rows(read_chart(Path(__file__).with_name("fronts.json")), points),
        downloads=(Download(f"{name}.front.csv", text),),
        headline=f"{name} has {pluralize(len(rows), 'point')} on {pluralize(len(networks), 'front')}.",
    )


SECTION = Section("fronts", "What does an accelerator cost in time, area and energy?", "hardware", make)
