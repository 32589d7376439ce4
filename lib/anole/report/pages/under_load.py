"""Section: how long single runs take beside busy processes."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

from anole.report.pages.charts import rows_of_points
from anole.report.pages.figure import MOST_NAMES, Figure, Lacking, Shown, Source, Table
from anole.words import counted, milliseconds, shown_of, times

_SQL = """
select
    load_latency.build,
    load_latency.neighbours,
    load_latency.engine,
    load_latency.p50_s,
    load_latency.p95_s,
    load_latency.p99_s,
    load_latency.runs,
    load_latency.rounds
from load_latency
join build on build.name = load_latency.build
where load_latency.created_at >= build.created_at
order by load_latency.build, load_latency.neighbours, load_latency.engine
"""


def make(source: Source) -> list[Shown]:
    """Returns the percentiles of each engine beside each number of neighbours."""
    query = source.database.query(_SQL)
    if not query.rows:
        remedy = "`anole evaluate builds/BUILD --neighbours 0,1,2` and then `anole merge` fill this."
        return [Lacking("Latency beside busy processes", remedy)]
    found = query.records()
    values = [
        {
            "place": f"{row['build']}, {row['neighbours']} busy",
            "p50_ms": 1e3 * row["p50_s"],
            "engine": row["engine"],
            "p99_ms": 1e3 * row["p99_s"],
            "runs": row["runs"],
        }
        for row in found
    ]
    places = list(dict.fromkeys(str(value["place"]) for value in values))
    shown = places[:MOST_NAMES]
    chart = rows_of_points(
        [value for value in values if value["place"] in shown],
        *("place", "p50_ms", "engine", "ms of one run: p50, and a line to p99"),
        low="p50_ms",
        high="p99_ms",
    )
    rows = [
        (
            row["build"],
            str(row["neighbours"]),
            row["engine"],
            *(milliseconds(row[name]) for name in ("p50_s", "p95_s", "p99_s")),
            str(row["runs"]),
        )
        for row in found
    ]
    return [
        Figure(
            "Latency beside busy processes",
            "ms of one run, lower is better.",
            f"{counted(sum(row['runs'] for row in found), 'run')}, at least {min(row['runs'] for row in found)} of "
            f"each line; of fewer than 100 runs, p99 is the slowest.{shown_of(len(shown), len(places))}",
            "build and references took turns, each in a process of its own with nothing pinned to a core, while so "
            "many processes of the same priority kept cores busy.",
            (query,),
            Table.of(("build", "busy", "engine", "p50", "p95", "p99", "runs"), rows),
            chart,
            headline=_beside_most(found),
        )
    ]


def _beside_most(rows: list[dict[str, Any]]) -> str:
    """Returns how fast the builds are beside the most neighbours, each reference's median divided by a build's."""
    most = max(row["neighbours"] for row in rows)
    own = {row["build"]: row["p50_s"] for row in rows if row["neighbours"] == most and row["engine"] == "build"}
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row["neighbours"] == most and row["engine"] != "build" and row["build"] in own:
            ratios.setdefault(row["engine"], []).append(row["p50_s"] / own[row["build"]])
    means = (f"{times(geometric_mean(found))} over {engine} (n = {len(found)})" for engine, found in ratios.items())
    return f"Beside {counted(most, 'busy process')}, the speedup is {', '.join(means)}, by p50."
