"""Section: each build beside every reference, with its accuracy, its size and the share of it that is tuned."""

from __future__ import annotations

from math import hypot
from typing import Any

from anole.report.pages.charts import rows_of_points
from anole.report.pages.database import Query
from anole.report.pages.figure import Figure, Lacking, Shown, Source, Table
from anole.report.pages.numbers import (
    NONE,
    counted,
    megabytes,
    milliseconds,
    percent,
    times,
    with_spread,
)

_BUILDS = """
select
    build.name as build,
    build.model,
    build.target,
    build.preset,
    build.trials,
    build.size_bytes,
    build.coverage_flop_share,
    (select min(start_s) from load_latency where build = build.name and engine = 'build') as start_s,
    build.created_at
from build
order by build.name
"""

_BESIDE = """
select
    build.name as build,
    evaluation.reference,
    evaluation.latency_s,
    evaluation.latency_std_s,
    evaluation.reference_latency_s,
    evaluation.reference_latency_std_s,
    evaluation.speedup,
    evaluation.relative_error,
    evaluation.snr_db,
    evaluation.output_variation,
    evaluation.rounds,
    evaluation.threads,
    evaluation.host ->> '$.cpu' as cpu
from evaluation
join build on build.name = evaluation.build
where evaluation.created_at >= build.created_at
order by build.name, evaluation.reference
"""


def make(source: Source) -> list[Shown]:
    """Returns the builds, and their latencies beside those of their references."""
    builds = source.database.query(_BUILDS)
    if not builds.rows:
        return [Lacking("Builds", "`snakemake --cores all` compiles the builds of models.yaml and evaluates them.")]
    beside = source.database.query(_BESIDE)
    if not beside.rows:
        remedy = "no build is evaluated; `snakemake --cores all` does it, on a machine that has their targets."
        return [_builds(builds), Lacking("Beside references", remedy)]
    return [_speedups(beside), _latencies(beside), _builds(builds)]


def _measured(rows: list[dict[str, Any]]) -> str:
    rounds = sorted({row["rounds"] for row in rows if row["rounds"]})
    machines = sorted({f"{row['cpu'] or 'an unnamed machine'}, {counted(row['threads'], 'thread')}" for row in rows})
    turns = f"{rounds[0]} to {rounds[-1]} rounds" if len(rounds) > 1 else f"{rounds[0]} rounds" if rounds else "rounds"
    return (
        f"build and references took turns ({turns}) on the same inputs and threads: {'; '.join(machines)}. "
        "A simulated target counts cycles, and its reference is the same network with default configs."
    )


def _speedups(beside: Query) -> Figure:
    values = []
    for row in beside.records():
        spread = row["speedup"] * hypot(
            (row["latency_std_s"] or 0.0) / row["latency_s"],
            (row["reference_latency_std_s"] or 0.0) / row["reference_latency_s"],
        )
        ends = {"low": max(row["speedup"] - spread, row["speedup"] / 10), "high": row["speedup"] + spread}
        values.append({"build": row["build"], "speedup": row["speedup"], "reference": row["reference"], **ends})
    chart = rows_of_points(
        values, "build", "speedup", "reference", "speedup over the reference", low="low", high="high", reference=1.0
    )
    return Figure(
        "Speedup over each reference",
        "times; above 1, the build is faster.",
        f"{counted(len({row[0] for row in beside.rows}), 'build')}, {counted(len(beside.rows), 'comparison')}.",
        f"{_measured(beside.records())} The point is the median of the rounds' ratios, the bar one standard deviation "
        "of both latencies to either side.",
        (beside,),
        chart=chart,
    )


def _latencies(beside: Query) -> Figure:
    rows = [
        (
            row["build"],
            with_spread(row["latency_s"], row["latency_std_s"]),
            row["reference"],
            with_spread(row["reference_latency_s"], row["reference_latency_std_s"]),
            times(row["speedup"]),
            _accuracy(row),
        )
        for row in beside.records()
    ]
    return Figure(
        "Latency and accuracy",
        "ms of one run ± one standard deviation, lower is better; the error is relative to the norm of the reference's "
        "outputs, or a signal-to-noise ratio in dB where the build computes with whole numbers.",
        f"{counted(len(rows), 'comparison')}.",
        "as above. An error says nothing where the outputs hardly depend on the input, which is then told.",
        (beside,),
        Table.of(("build", "ms", "reference", "its ms", "speedup", "error"), rows),
    )


def _accuracy(row: dict[str, Any]) -> str:
    if row["snr_db"] is not None:
        return f"{row['snr_db']:.1f} dB"
    constant = row["output_variation"] is not None and row["output_variation"] < 0.01
    return f"{row['relative_error']:.1e}" + (" (constant outputs)" if constant else "")


def _builds(builds: Query) -> Figure:
    rows = [
        (
            row["build"],
            row["target"],
            row["preset"],
            str(row["trials"]),
            percent(row["coverage_flop_share"]),
            megabytes(row["size_bytes"]),
            milliseconds(row["start_s"]),
            row["created_at"][:16].replace("T", " "),
        )
        for row in builds.records()
    ]
    started = any(row[6] != NONE for row in rows)
    shares = [row["coverage_flop_share"] for row in builds.records()]
    return Figure(
        "Size, start and share tuned",
        "MB of all compiled files; ms from the start of a process to the first outputs, imports included; share of the "
        "floating-point operations that run with a tuned config.",
        f"{counted(len(rows), 'build')}; the mean share is {percent(sum(shares) / len(shares))}.",
        "size and share when the build was compiled; starts once, when it was evaluated beside busy neighbours."
        + ("" if started else " No start is recorded: `anole evaluate builds/BUILD --neighbours 0` measures it."),
        (builds,),
        Table.of(("build", "target", "preset", "trials", "tuned", "MB", "start, ms", "compiled (UTC)"), rows),
    )
