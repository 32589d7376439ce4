"""Report section: the accelerators that builds were simulated on, and exact Pareto fronts over several networks."""

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

_CANDIDATES = """
select
    build.name as build,
    candidate.value -> '$.block' as block,
    candidate.value ->> '$.area' as area,
    candidate.value ->> '$.memory' as memory,
    candidate.value ->> '$.latency_s' as latency_s,
    build.manifest ->> '$.accelerator.frequency_mhz' as frequency_mhz
from build, json_each(build.manifest, '$.accelerator.candidates') as candidate
where candidate.type = 'object'
order by build.name, area, latency_s
"""

_SEARCH = "builds for a target with `hardware: search` in models.yaml, with enough trials."

_EXPLORED = "Front of time, area and energy"


def make(source: ReportSource) -> list[Shown]:
    """Return the geometries that builds were simulated on, and the exact Pareto front of each accelerator entry."""
    paths = sorted((source.project / layout.ACCELERATORS).glob(f"*/{FRONT}"))
    missing = MissingData(_EXPLORED, "an entry of `accelerators` in models.yaml (docs/vta/accelerators.md).")
    return [_build_geometries(source), *(map(_exploration, paths) if paths else (missing,))]


def _build_geometries(source: ReportSource) -> Shown:
    title = "Geometries that an entire network was simulated on"
    query = source.database.query(_CANDIDATES)
    if not query.rows:
        return MissingData(title, _SEARCH)
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
            point["front_mask"] = is_on_front
    optima = [point for point in points if point["front_mask"]]
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
        "cycles of all accelerator steps of one run, and area relative to VTA; lower is better for both.",
        f"{len(points)} geometries of {pluralize(len(builds), 'build')}; the table has {len(optima)} on the fronts.",
        "all layers simulated on one accelerator, each with its fastest config there; the line is the front. Area is "
        "an estimate in gates (docs/vta/README.md).",
        (query,),
        Table.of(("build", "block", "area", "memory", "cycles", "ms"), rows),
        with_rows(read_chart(Path(__file__).with_name("geometries.json")), points),
    )


def _exploration(path: Path) -> Shown:
    """Return the figure for a file of the exploration stage."""
    title = f"{_EXPLORED}: {path.parent.name}"
    try:
        return _figure(title, path.parent.name, path.read_text(encoding="utf-8"))
    except (ValueError, LookupError, StopIteration):
        return MissingData(
            title, f"its {path.name}, which is broken; `anole accelerator {path.parent.name}` writes it again."
        )


def _figure(title: str, name: str, text: str) -> Figure:
    rows = list(csv.DictReader(io.StringIO(text)))
    energy = next(column for column in rows[0] if "energy" in column)
    unit = "millijoules" if energy == "energy_mj" else "units of the front's lowest"
    fronts = {row["network"] for row in rows}
    points = [
        {
            **{column: float(row[column]) for column in ("area", "latency_ms")},
            **{column: row[column] for column in ("network", "accelerator", "block", "knee", "checked")},
            "energy": float(row[energy]),
        }
        for row in rows
    ]
    columns = ("network", "knee", "accelerator", "area", "latency_ms", energy, "checked")
    marked = (
        (
            *(row["network"], f"min {row['knee']}", row["accelerator"], times(float(row["area"])), row["latency_ms"]),
            *(significant(float(row[energy])), row["checked"]),
        )
        for row in rows
        if row["knee"]
    )
    return Figure(
        title,
        f"milliseconds of all layers on the accelerator in one run, area relative to VTA, energy in {unit}; "
        "lower is better for each.",
        f"{pluralize(len(rows), 'point')} on {pluralize(len(fronts), 'front')}, "
        "for single networks and for all together.",
        "every program of every layer simulated; each layer has its fastest program on one accelerator for all. No "
        "other accelerator dominates a point. Area is estimated in gates, and energy from accesses "
        "(docs/vta/accelerators.md); cycles not marked RTL are extrapolated.",
        (),
        Table.of(columns, marked),
        with_rows(read_chart(Path(__file__).with_name("fronts.json")), points),
        downloads=(Download(f"{name}.front.csv", text),),
        headline=f"The front of {name} has {pluralize(len(rows), 'point')}.",
    )


SECTION = Section("fronts", "What does an accelerator cost in time, area and energy?", "hardware", make)
