"""Section: where the time of each build goes, kernel by kernel, and how far each is from the roofline."""

from __future__ import annotations

import json
from typing import Any

from anole.evaluate.kernel_words import kernel_words
from anole.report.pages.charts import scatter, stacked_bars
from anole.report.pages.database import Query
from anole.report.pages.figure import MOST_NAMES, Figure, Lacking, Shown, Source, Table
from anole.words import NONE, counted, milliseconds, percent, shown_of, significant

_SQL = """
with layer as (
    -- A layer that a model calls on inputs of two shapes is two tasks, which differ in their operations as a rule.
    select model_task.model, model_task.target, each.value as name, task.flop, min(task.label) as label
    from model_task
    join json_each(model_task.layers) as each
    join task on task.key = model_task.task_key
    group by model_task.model, model_task.target, each.value, task.flop
)
select
    kernel_profile.build,
    kernel_profile.whole_s,
    kernel_profile.peak_flop_per_s,
    kernel_profile.peak_bytes_per_s,
    kernel_latency.kernel,
    kernel_latency.layers,
    layer.label as task,
    kernel_latency.calls,
    kernel_latency.latency_s,
    kernel_latency.latency_s / kernel_profile.whole_s as share,
    kernel_latency.flop,
    kernel_latency.size_bytes
from kernel_latency
join kernel_profile on kernel_profile.build = kernel_latency.build
join build on build.name = kernel_latency.build
left join layer
    on layer.model = build.model
    and layer.target = build.target
    and layer.name = kernel_latency.layers ->> 0
    and layer.flop = kernel_latency.flop
where kernel_profile.created_at >= build.created_at
order by kernel_latency.build, kernel_latency.latency_s desc
"""

_NAMES = ("layers", "task", "kernel")
"""What a picture tells of a kernel that is pointed at."""

_TOP = 6
"""Of so many kernels of each build, the bars tell apart the shares."""

_MOST_POINTS = 400
"""So many kernels the roofline shows at most: those with the largest shares."""

_LEAST_SHARE = 0.01
"""The roofline shows kernels with at least this share of a network's time."""


def make(source: Source) -> list[Shown]:
    """Returns the shares of the slowest kernels, and the roofline."""
    query = source.database.query(_SQL)
    rows = [{**row, "layers": kernel_words(row["kernel"], json.loads(row["layers"]))} for row in query.records()]
    if not rows:
        remedy = (
            "evaluating a build for the CPU times its kernels; builds that an older version evaluated have none: "
            "`snakemake --cores all --forcerun evaluate` fills this. `anole profile builds/BUILD` shows one build."
        )
        return [Lacking("Kernels", remedy)]
    return [_shares(query, rows), *_roofline(query, rows)]


def _shares(query: Query, found: list[dict[str, Any]]) -> Figure:
    values: list[dict[str, Any]] = []
    by_build: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        by_build.setdefault(row["build"], []).append(row)
    shown = sorted(by_build, key=lambda build: -float(by_build[build][0]["share"]))[:MOST_NAMES]
    for build, rows in ((build, by_build[build]) for build in sorted(shown)):
        for rank, row in enumerate(rows[:_TOP], 1):
            what = f"{rank}{('st', 'nd', 'rd', *['th'] * _TOP)[rank - 1]} kernel"
            values.append({"rank": what, **{key: row[key] for key in ("build", "share", *_NAMES)}})
        rest = sum(row["share"] for row in rows[_TOP:])
        if rest:
            others = {"layers": counted(len(rows) - _TOP, "kernel"), "task": None, "kernel": ""}
            values.append({"build": build, "rank": "others", "share": rest, **others})
    table = (
        (
            build,
            row["layers"],
            row["task"] or NONE,
            str(row["calls"]),
            milliseconds(row["latency_s"]),
            percent(row["share"]),
            significant(row["flop"] * row["calls"] / row["latency_s"] / 1e9 if row["flop"] else None),
            percent(_reached(row)),
        )
        for build, rows in by_build.items()
        for row in rows[:_TOP]
    )
    slowest = max(by_build, key=lambda build: by_build[build][0]["share"])
    first = by_build[slowest][0]
    return Figure(
        "Kernels by share of the network's time",
        "share of one run; ms of all calls of a kernel in one run, lower is better; GFLOP/s and share of the roofline, "
        "higher is better (above 100 % where the data come from a cache).",
        f"{counted(len(query.rows), 'kernel')} of {counted(len(by_build), 'build')}; the table has the {_TOP} slowest "
        f"of each.{shown_of(len(shown), len(by_build))}",
        "each kernel within the whole network, instrumented runs in turns with plain ones; the median of the fastest "
        "tenth. Shares may add up to a little more or less than 100 %.",
        (query,),
        Table.of(("build", "layers", "task", "calls", "ms", "share", "GFLOP/s", "of the roofline"), table),
        stacked_bars(values, "build", "share", "rank", "share of one run, kernels by rank"),
        headline=f"The largest share of a network's time in one kernel is {percent(first['share'])}: "
        f"{first['layers']} of {slowest}.",
    )


def _reached(row: dict[str, Any]) -> float | None:
    if row["peak_flop_per_s"] is None:
        return None
    flop, size_bytes = row["flop"] * row["calls"], row["size_bytes"] * row["calls"]
    least_s = max(flop / row["peak_flop_per_s"], size_bytes / row["peak_bytes_per_s"])
    return float(least_s / row["latency_s"])


def _roofline(query: Query, found: list[dict[str, Any]]) -> list[Shown]:
    rows = [row for row in found if row["peak_flop_per_s"] is not None]
    points = [
        {
            "intensity": row["flop"] / row["size_bytes"],
            "gflops": row["flop"] * row["calls"] / row["latency_s"] / 1e9,
            **{key: row[key] for key in ("build", *_NAMES)},
            "share": round(row["share"], 4),
        }
        for row in rows
        if row["flop"] and row["size_bytes"] and row["share"] >= _LEAST_SHARE
    ]
    if not points:
        return [Lacking("Roofline", "no kernel that computes takes 1 % of a network's time and 20 µs.")]
    count = len(points)
    points = sorted(points, key=lambda point: -point["share"])[:_MOST_POINTS]
    flop_per_s, bytes_per_s = (max(row[f"peak_{name}_per_s"] for row in rows) for name in ("flop", "bytes"))
    ridge = flop_per_s / bytes_per_s
    ends = sorted({*(f(point["intensity"] for point in points) for f in (min, max)), ridge})
    roof = [{"intensity": at, "gflops": min(flop_per_s, at * bytes_per_s) / 1e9} for at in ends]
    return [
        Figure(
            "Roofline",
            "GFLOP/s, higher is better, over floating-point operations for each byte of a kernel's inputs and outputs.",
            f"{counted(count, 'kernel')} with at least 1 % of a network's time.{shown_of(len(points), count)}",
            "kernels as above. The roof is the highest that was measured beside a build: "
            f"{significant(flop_per_s / 1e9)} GFLOP/s of multiply-adds from registers, and "
            f"{significant(bytes_per_s / 1e9)} GB/s of copying memory.",
            (query,),
            chart=scatter(
                *(points, "intensity", "gflops", "build", ("floating-point operations a byte", "GFLOP/s")), line=roof
            ),
        )
    ]
