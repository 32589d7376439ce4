"""Section: each build beside every reference, with its accuracy, its size and the share of it that is tuned."""

from __future__ import annotations

from typing import Any

from anole.report.pages.charts import rows_of_points
from anole.report.pages.database import Query
from anole.report.pages.figure import MOST_NAMES, Figure, Lacking, Shown, Source, Table
from anole.words import (
    NONE,
    counted,
    megabytes,
    milliseconds,
    named_few,
    percent,
    shown_of,
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
    evaluation.speedup_low,
    evaluation.speedup_high,
    evaluation.relative_error,
    evaluation.snr_db,
    evaluation.output_variation,
    evaluation.rounds,
    evaluation.threads,
    evaluation.host ->> '$.processor' as processor
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
    machines = sorted(
        {f"{row['processor'] or 'an unnamed machine'}, {counted(row['threads'], 'thread')}" for row in rows}
    )
    turns = f"{rounds[0]} to {rounds[-1]} rounds" if len(rounds) > 1 else f"{rounds[0]} rounds" if rounds else "rounds"
    return (
        f"build and references took turns ({turns}) on the same inputs and threads: {'; '.join(machines)}. "
        "A simulated target counts cycles, and its reference is the same network with default configs."
    )


def _speedups(beside: Query) -> Figure:
    values = []
    for row in beside.records():
        own = {name: row[name] for name in ("build", "speedup", "reference")}
        low, high = row["speedup_low"] or row["speedup"], row["speedup_high"] or row["speedup"]
        values.append({**own, "low": low, "high": high})
    older = any(row["speedup_low"] is None for row in beside.records())
    # Where there are many builds, those with the least speedup are the ones to look at.
    least = list(dict.fromkeys(value["build"] for value in sorted(values, key=lambda value: value["speedup"])))
    shown = least[:MOST_NAMES]
    chart = rows_of_points(
        [value for value in values if value["build"] in shown],
        *("build", "speedup", "reference", "speedup over the reference"),
        low="low",
        high="high",
        reference=1.0,
    )
    return Figure(
        "Speedup over each reference",
        "times; above 1, the build is faster.",
        f"{counted(len(least), 'build')}, {counted(len(beside.rows), 'comparison')}.{shown_of(len(shown), len(least))}",
        f"{_measured(beside.records())} The point is the median of the rounds' ratios, and the bar has the middle half "
        "of them" + ("; evaluations of older versions have none." if older else "."),
        (beside,),
        chart=chart,
        headline=_slower(beside.records()),
    )


def _slower(rows: list[dict[str, Any]]) -> str:
    """Returns which builds are slower than a reference."""
    builds = counted(len({row["build"] for row in rows}), "evaluated build")
    slower = sorted((row for row in rows if row["speedup"] < 1), key=lambda row: float(row["speedup"]))
    if not slower:
        return f"None of {builds} is slower than a reference."
    named = named_few([f"{row['build']} ({times(row['speedup'])} beside {row['reference']})" for row in slower])
    return f"Of {builds}, {len({row['build'] for row in slower})} slower than a reference: {named}."


def _latencies(beside: Query) -> Figure:
    rows = [
        (
            row["build"],
            with_spread(row["latency_s"], row["latency_std_s"]),
            row["reference"],
            with_spread(row["reference_latency_s"], row["reference_latency_std_s"]),
            times(row["speedup"]),
            NONE if row["speedup_low"] is None else f"{times(row['speedup_low'])} to {times(row['speedup_high'])}",
            _accuracy(row),
        )
        for row in beside.records()
    ]
    return Figure(
        "Latency and accuracy",
        "ms of one run (median ± one standard deviation of all runs), lower is better; error relative to the norm of "
        "the reference's outputs, or a signal-to-noise ratio in dB where the build computes with whole numbers.",
        f"{counted(len(rows), 'comparison')}.",
        "as above. An error says nothing where the outputs hardly depend on the input, which is then told.",
        (beside,),
        Table.of(("build", "ms", "reference", "its ms", "speedup", "middle half", "error"), rows),
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
