"""Report section: the utilization of each unit of an accelerator, by layer."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from anole.documents import layout
from anole.documents.build import read_build
from anole.errors import AnoleError
from anole.report.cookbook import read_chart
from anole.report.pages.figure import Figure, MissingData, ReportSource, Section, Shown, Table, with_rows
from anole.text_format import NONE, percent, pluralize
from anole_vta.network.artifact import load_programs
from anole_vta.pages.accelerators import REMEDY
from anole_vta.report import Utilization, utilization
from anole_vta.simulator.timing import simulate

_SQL = """
select
    build.name as build,
    build.created_at,
    step.value ->> '$.name' as layer,
    step.value ->> '$.instructions' as instructions,
    step.value ->> '$.cycles' as cycles,
    build.manifest -> '$.accelerator.geometry' as geometry
from build, json_each(build.manifest, '$.accelerator.steps') as step
where step.type = 'object'
order by build.name, step.key
"""

_MAX_INSTRUCTIONS = 3_000_000
"""Limit on the instructions of all builds together that are simulated, in about half a minute."""


def make(source: ReportSource) -> list[Shown]:
    """Return a figure of the share of cycles in which each unit works."""
    title = "Utilization by unit"
    query = source.database.query(_SQL)
    if not query.rows:
        return [MissingData(title, REMEDY)]
    rows: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = []
    builds = [(name, list(steps)) for name, steps in groupby(query.records(), key=itemgetter("build"))]
    left = _MAX_INSTRUCTIONS
    for build, steps in builds:
        left -= sum(step["instructions"] for step in steps)
        utilizations = _usage(source.project / layout.build_path(build), steps[0]["created_at"]) if left >= 0 else {}
        rows += [{**step, "used": utilizations.get(step["layer"])} for step in steps]
        if known := [utilizations[step["layer"]] for step in steps if step["layer"] in utilizations]:
            values += [{"build": build, "share": share, "unit": unit} for unit, share in _shares(known).items()]
    table = (
        (
            row["build"],
            row["layer"],
            f"{row['cycles']:,}",
            f"{row['instructions']:,}",
            *([NONE] * 4 if row["used"] is None else map(percent, _shares([row["used"]]).values())),
        )
        for row in sorted(rows, key=lambda row: (row["build"], -row["cycles"]))
    )
    n_known = sum(row["used"] is not None for row in rows)
    return [
        Figure(
            title,
            "share of a program's cycles in which a unit works; the GEMM core (part of compute) should be high.",
            f"{pluralize(len(rows), 'step')} of {pluralize(len(builds), 'build')}, {n_known} of them simulated.",
            "the timing simulator runs the instructions of each step from the build's folder; without it, "
            "only cycles are known. The chart shows entire networks, the table each step, longest first.",
            (query,),
            Table.of(("build", "layer", "cycles", "instructions", *_UNITS), table),
            with_rows(read_chart(Path(__file__).with_suffix(".json")), values) if values else None,
        )
    ]


_UNITS = ("load", "compute", "store", "GEMM core")


def _usage(folder: Path, created_at: str) -> Mapping[str, Utilization]:
    """Return the utilization of each step of a build; empty if the folder and the database hold different builds."""
    try:
        if read_build(folder).created_at != created_at:
            return {}
        programs = load_programs(folder)
    except AnoleError:
        return {}
    return {
        name: utilization(program, simulate(program.instructions, program.geometry))
        for name, program in programs.items()
    }


def _shares(utilizations: list[Utilization]) -> dict[str, float]:
    cycles = sum(item.cycles for item in utilizations)
    modules = {name: sum(item.busy[name] for item in utilizations) / cycles for name in _UNITS[:3]}
    return {**modules, _UNITS[3]: sum(item.operations for item in utilizations) / cycles}


SECTION = Section("utilization", "How busy are its units?", "hardware", make)
