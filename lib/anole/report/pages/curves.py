"""Section: how good the best config is after so many trials and seconds, by preset."""

from __future__ import annotations

from anole.report.pages.charts import lines
from anole.report.pages.figure import Figure, Lacking, Shown, Source, Table
from anole.words import counted, percent, significant

_CURVE = """
with recursive ends as (
    select run.preset, max(trial.{column}) {more} as reach
    from trial
    join run on run.key = trial.run_key
    group by run.preset
),
grid(at, before) as (
    select {first}, {zero}
    union all
    select min({next}, (select max(reach) from ends)), at from grid where at < (select max(reach) from ends)
),
placed as (
    select trial.run_key, grid.at, min(trial.latency_s) as latency_s
    from trial
    join grid on trial.{column} >= grid.before and trial.{column} < grid.at {last}
    where trial.status = 'ok'
    group by trial.run_key, grid.at
),
so_far as (
    select
        run.task_key,
        run.preset,
        run.seed,
        grid.at,
        min(placed.latency_s) over (partition by run.key order by grid.at) as latency_s
    from run
    join ends on ends.preset = run.preset
    join grid on grid.before < ends.reach
    left join placed on placed.run_key = run.key and placed.at = grid.at
    where exists (select 1 from trial where trial.run_key = run.key)
),
best as (select task_key, min(latency_s) as latency_s from trial where status = 'ok' group by task_key),
of_seed as (
    select
        preset,
        seed,
        at,
        count(distinct so_far.task_key) as tasks,
        avg(coalesce(best.latency_s / so_far.latency_s, 0)) as speed
    from so_far
    join best on best.task_key = so_far.task_key
    group by preset, seed, at
)
select
    preset,
    at as {name},
    avg(speed) as speed,
    min(speed) as lowest_seed,
    max(speed) as highest_seed,
    count(*) as seeds,
    max(tasks) as tasks
from of_seed
group by preset, at
order by preset, at
"""

_BY_TRIALS = _CURVE.format(
    column="number", more="+ 1", first="1", zero="0", next="at + max(1, at / 4)", last="", name="trials"
)
_BY_SECONDS = _CURVE.format(
    column="elapsed_s",
    more="",
    first="1.0",
    zero="0.0",
    next="at * 1.25",
    last="or trial.elapsed_s = grid.at and grid.at = (select max(reach) from ends)",
    name="seconds",
)

_SUMMARY = """
select
    run.preset,
    count(distinct run.key) as runs,
    count(distinct run.task_key) as tasks,
    count(distinct run.seed) as seeds,
    count(*) as trials,
    sum(trial.status <> 'ok') as failures,
    sum(trial.build_s) as build_s,
    sum(trial.run_s) as run_s
from trial
join run on run.key = trial.run_key
group by run.preset
order by run.preset
"""


def make(source: Source) -> list[Shown]:
    """Returns the curves over trials and over seconds, and what each preset has spent."""
    summary = source.database.query(_SUMMARY)
    if not summary.rows:
        return [Lacking("Curves", "`snakemake --cores all` tunes the tasks of models.yaml and records every trial.")]
    shown: list[Shown] = []
    for name, sql, title in (
        ("trials", _BY_TRIALS, "trials of a task"),
        ("seconds", _BY_SECONDS, "seconds of tuning a task"),
    ):
        query = source.database.query(sql)
        if not query.rows:
            return [Lacking("Curves", "no trial has succeeded yet.")]
        chart = lines(
            query.records(),
            *(name, "speed", "preset", (f"{title} (logarithmic)", "share of the best known speed")),
            low="lowest_seed",
            high="highest_seed",
            log=True,
        )
        seeds = max(row["seeds"] for row in query.records())
        band = "the band reaches from the lowest to the highest seed" if seeds > 1 else "one seed, so there is no band"
        shown.append(
            Figure(
                f"Best config so far, over {name}",
                f"a task's least latency of all runs divided by the least so far, mean over tasks; 1 is best; {title}.",
                f"{counted(sum(row[1] for row in summary.rows), 'run')}; the table has tasks and seeds of each preset.",
                "every trial as it was recorded; 0 before a run's first success, and a run that ended keeps its best. "
                f"The line is the mean over seeds; {band}. Presets compare only where they tuned the same tasks.",
                (query,),
                chart=chart,
            )
        )
    rows = (
        (
            row["preset"],
            *(f"{row[name]:,}" for name in ("tasks", "seeds", "runs", "trials")),
            percent(row["failures"] / row["trials"]),
            *(significant(row[name]) for name in ("build_s", "run_s")),
        )
        for row in summary.records()
    )
    spent = Figure(
        "What each preset has spent",
        "s of building (wall clock of each build; builds run in parallel) and of loading, checking and timing.",
        f"{sum(row[4] for row in summary.rows):,} trials.",
        "added up over all trials.",
        (summary,),
        Table.of(("preset", "tasks", "seeds", "runs", "trials", "failed", "building, s", "running, s"), rows),
    )
    return [*shown, spent]
