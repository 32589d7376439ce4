"""Section: each pair of presets on the tasks and seeds that both tuned, with intervals."""

from __future__ import annotations

from math import exp, log
from typing import Any

from anole.report.pages.bootstrap import mean_interval
from anole.report.pages.charts import rows_of_points
from anole.report.pages.figure import MOST_NAMES, Figure, Lacking, Shown, Source, Table
from anole.words import NONE, counted, shown_of, times

_SQL = """
with measured as (select run_key, count(*) as trials from trial group by run_key),
tuned as (
    select run.key, run.task_key, run.preset, run.seed, measured.trials
    from run
    join measured on measured.run_key = run.key
)
select
    one.preset as one,
    other.preset as other,
    one.task_key,
    one.seed,
    min(one.trials, other.trials) as trials,
    (
        select min(latency_s) from trial
        where run_key = one.key and number < min(one.trials, other.trials) and status = 'ok'
    ) as one_latency_s,
    (
        select min(latency_s) from trial
        where run_key = other.key and number < min(one.trials, other.trials) and status = 'ok'
    ) as other_latency_s
from tuned as one
join tuned as other on other.task_key = one.task_key and other.seed = one.seed and other.preset > one.preset
order by one.preset, other.preset, one.task_key, one.seed
"""

_FEWEST_TASKS, _FEWEST_PAIRS = 3, 5
"""With fewer, resampling tells next to nothing of what else might have been: of one task, an interval is a point."""


def make(source: Source) -> list[Shown]:
    """Returns the ratios of the presets' speeds."""
    title = "Tuners compared in pairs"
    query = source.database.query(_SQL)
    pairs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in query.records():
        pairs.setdefault((row["one"], row["other"]), []).append(row)
    found = [each for names, rows in pairs.items() if (each := _compare(names, rows)) is not None]
    if not found:
        return [Lacking(title, "builds of one model with several presets in models.yaml; no task has two yet.")]
    shown = sorted(found, key=lambda each: -each["pairs"])[:MOST_NAMES]
    figure = Figure(
        title,
        "speed of the first preset's best config divided by that of the second's; above 1, the first is better.",
        f"{counted(len(query.rows), 'pair')} of runs of one task with one seed.{shown_of(len(shown), len(found))}",
        "the best latency of the first trials, as many as the shorter run has. Geometric mean over tasks, each the "
        "mean of its seeds. The interval holds 95 % of 2000 bootstrap samples of the logarithms, drawn by tasks and "
        f"then by seeds; with fewer than {_FEWEST_TASKS} tasks or {_FEWEST_PAIRS} pairs there is none.",
        (query,),
        Table.of(("pair", "ratio", "95 % interval", "tasks", "pairs", "trials", "one found nothing"), map(_row, found)),
        rows_of_points(
            [{name: each[name] for name in ("pair", "ratio", "verdict", "low", "high")} for each in shown],
            *("pair", "ratio", "verdict", "ratio of speeds"),
            low="low",
            high="high",
            reference=1.0,
        ),
        headline=f"{sum('better' in each['verdict'] for each in found)} of {counted(len(found), 'pair')} of presets "
        "can be told apart.",
    )
    return [figure]


def _compare(names: tuple[str, str], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the comparison of two presets; None if there is no task on which both found a config."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row["one_latency_s"] and row["other_latency_s"]:
            ratios.setdefault(row["task_key"], []).append(log(row["other_latency_s"] / row["one_latency_s"]))
    if not ratios:
        return None
    pairs = sum(map(len, ratios.values()))
    middle, low, high = mean_interval(list(ratios.values()))
    told = len(ratios) >= _FEWEST_TASKS and pairs >= _FEWEST_PAIRS
    better = names[0] if low > 0 else names[1] if high < 0 else None
    budgets = sorted({row["trials"] for row in rows})
    return {
        "pair": f"{names[0]} / {names[1]}",
        "ratio": exp(middle),
        "low": exp(low if told else middle),
        "high": exp(high if told else middle),
        "told": told,
        "verdict": "too few to tell"
        if not told
        else "cannot be told apart"
        if better is None
        else f"{better} is better",
        "tasks": len(ratios),
        "pairs": pairs,
        "trials": f"{budgets[0]}" if len(budgets) == 1 else f"{budgets[0]} to {budgets[-1]}",
        "lost": len(rows) - pairs,
    }


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    interval = f"{times(each['low'])} to {times(each['high'])}" if each["told"] else NONE
    counts = (str(each[name]) for name in ("tasks", "pairs", "trials", "lost"))
    return each["pair"], times(each["ratio"]), interval, *counts
