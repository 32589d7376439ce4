"""Section: which share of the candidates failed, and why."""

from __future__ import annotations

from anole.report.pages.charts import stacked_bars
from anole.report.pages.figure import Figure, Lacking, Shown, Source, Table
from anole.words import counted, percent

_SHARES = """
select
    run.preset,
    trial.status,
    count(*) as trials,
    1.0 * count(*) / sum(count(*)) over (partition by run.preset) as share
from trial
join run on run.key = trial.run_key
group by run.preset, trial.status
order by run.preset, trial.status
"""

_REASONS = """
select
    trial.status,
    substr(trial.error, 1, instr(trial.error || char(10), char(10)) - 1) as reason,
    count(*) as trials,
    count(distinct trial.task_key) as tasks,
    group_concat(distinct run.preset) as presets
from trial
join run on run.key = trial.run_key
where trial.status <> 'ok'
group by 1, 2
order by count(*) desc, 1, 2
limit 500
"""

_LONGEST = 160
"""Characters of a reason that the table shows."""


def make(source: Source) -> list[Shown]:
    """Returns the shares of the outcomes, and the reasons of failures."""
    shares = source.database.query(_SHARES)
    if not shares.rows:
        return [Lacking("Failures", "no trial is recorded yet.")]
    total = sum(row[2] for row in shares.rows)
    failed = sum(row[2] for row in shares.rows if row[1] != "ok")
    overview = Figure(
        "Outcomes of trials",
        "share of a preset's trials.",
        f"{counted(total, 'trial')}, of which {failed:,} ({percent(failed / total)}) failed.",
        "each candidate was built, run, compared with a float64 reference and timed; the first failure counts.",
        (shares,),
        chart=stacked_bars(shares.records(), "preset", "share", "status", "share of trials"),
    )
    if not failed:
        return [overview, Lacking("Failures by reason", "none: every trial succeeded.")]
    reasons = source.database.query(_REASONS)
    rows = (
        (
            row["status"],
            (row["reason"] or "no message")[:_LONGEST],
            f"{row['trials']:,}",
            percent(row["trials"] / total),
            str(row["tasks"]),
            row["presets"].replace(",", ", "),
        )
        for row in reasons.records()
    )
    table = Table.of(("status", "reason", "trials", "of all", "tasks", "presets"), rows)
    first = reasons.records()[0]
    by_reason = Figure(
        title="Failures by reason",
        units="trials.",
        n=f"{failed:,} failures.",
        method="the first line of each message.",
        queries=(reasons,),
        table=table,
        headline=f"{percent(failed / total)} of all trials failed; most often, {first['trials']:,} times: "
        f"{first['status']}, {(first['reason'] or 'no message')[:_LONGEST]}.",
    )
    return [overview, by_reason]
