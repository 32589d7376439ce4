"""Report section: the geometry chosen for each build, with its vta_config.json."""

from __future__ import annotations

import json

from anole.errors import AnoleError
from anole.report.pages.figure import Download, Figure, MissingData, ReportSource, Section, Shown, Table
from anole.text_format import milliseconds, pluralize, times
from anole_vta.geometry import Geometry, vta_config

SQL = """
select
    name as build,
    manifest -> '$.accelerator.geometry' as geometry,
    manifest ->> '$.accelerator.area' as area,
    manifest ->> '$.accelerator.memory' as memory,
    manifest ->> '$.accelerator.frequency_mhz' as frequency_mhz,
    manifest ->> '$.accelerator.cycles' as cycles,
    manifest ->> '$.accelerator.latency_s' as latency_s,
    manifest ->> '$.accelerator.untuned_latency_s' as untuned_latency_s,
    manifest ->> '$.accelerator.per_layer_latency_s' as per_layer_latency_s
from build
where manifest ->> '$.accelerator.cycles' is not null
order by name
"""

REMEDY = "add a build for a target of `kind: vta` in models.yaml, such as `{kind: vta, hardware: search}`."
"""How to get the data that the sections on accelerators require."""


def make(source: ReportSource) -> list[Shown]:
    """Return a table of the chosen geometries, with a vta_config.json for each."""
    query = source.database.query(SQL)
    if not query.rows:
        return [MissingData("Chosen geometry", REMEDY)]
    rows, downloads = [], []
    for row in query.records():
        try:
            geometry = Geometry.from_json(json.loads(row["geometry"]))
        except AnoleError:
            continue
        text = json.dumps(vta_config(geometry), indent=2)
        downloads.append(Download(f"{row['build']}.vta_config.json", text + "\n"))
        kib = (geometry.inp_bytes, geometry.wgt_bytes, geometry.acc_bytes, geometry.uop_bytes)
        rows.append(
            (
                row["build"],
                geometry.variant,
                "x".join(map(str, geometry.block)),
                "/".join(str(size // 1024) for size in kib),
                *(times(row["area"]), times(row["memory"]), f"{row['cycles']:,}"),
                *(milliseconds(row[f"{which}latency_s"]) for which in ("", "untuned_", "per_layer_")),
            )
        )
    columns = ("build", "variant", "block", "inp/wgt/acc/uop, KiB", "area", "memory", "cycles", "ms", "untuned, ms")
    return [
        Figure(
            "Chosen geometry",
            "area and on-chip memory relative to VTA (1x16x16, default buffers); cycles and ms of all accelerator "
            "steps for one input, lower is better. Time on the host is not counted.",
            f"{pluralize(len(rows), 'build')}.",
            "the timing simulator counts cycles (docs/vta/README.md has its accuracy), and the clock gives ms. Area is "
            "estimated from gate counts. The last column is the time if each layer had its own best geometry.",
            (query,),
            Table.of((*columns, "best of each, ms"), rows),
            downloads=tuple(downloads),
            headline=f"{pluralize(len(rows), 'build')} for the accelerator, with blocks of "
            f"{', '.join(dict.fromkeys(row[2] for row in rows))}.",
        )
    ]


SECTION = Section("geometry", "Which accelerator was chosen?", "hardware", make)
