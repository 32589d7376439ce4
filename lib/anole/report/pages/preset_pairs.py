"""Section: each pair of presets on the tasks and seeds that both tuned, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from anole.report.cookbook import Recipe, read_chart
from anole.report.pages.figure import Figure, Lacking, ReportSource, Section, Shown, Table, with_rows
from anole.text_format import NONE, counted, times

_MIN_TASKS, _MIN_PAIRS = 3, 5
"""With fewer, resampling tells next to nothing of what else might have been: of one task, an interval is a point."""

_RESAMPLES = 2000
_LEVEL = 0.95


def section_of_pairs(recipe: Recipe, reader: str) -> Section:
    """Return the section; its recipe is ``preset_pairs``."""

    def make(source: ReportSource) -> list[Shown]:
        query = source.database.query(recipe.sql)
        pairs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in query.records():
            pairs.setdefault((row["one"], row["other"]), []).append(row)
        found = [each for names, rows in pairs.items() if (each := _compare(names, rows)) is not None]
        if not found:
            return [Lacking(recipe.question, recipe.remedy)]
        figure = Figure(
            recipe.question,
            recipe.units,
            f"{counted(len(query.rows), 'pair')} of runs of one task with one seed.",
            f"{recipe.measured} Geometric mean over tasks, each the mean of its seeds. The interval holds "
            f"{_LEVEL:.0%} of {_RESAMPLES} bootstrap samples of the logarithms, drawn by tasks and then by seeds; with "
            f"fewer than {_MIN_TASKS} tasks or {_MIN_PAIRS} pairs there is none. The picture has 40 at most.",
            (query,),
            Table.of(
                ("pair", "ratio", "95 % interval", "tasks", "pairs", "trials", "one found nothing"), map(_row, found)
            ),
            with_rows(read_chart(Path(__file__).with_suffix(".json")), found),
            headline=f"{sum('better' in each['verdict'] for each in found)} of {counted(len(found), 'pair')} of "
            "presets can be told apart.",
        )
        return [figure]

    return Section(recipe.name, recipe.question, reader, make)


def _compare(names: tuple[str, str], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the comparison of two presets; None if there is no task on which both found a config."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row["one_latency_s"] and row["other_latency_s"]:
            ratios.setdefault(row["task_key"], []).append(log(row["other_latency_s"] / row["one_latency_s"]))
    if not ratios:
        return None
    pairs = sum(map(len, ratios.values()))
    middle, low, high = mean_interval(list(ratios.values()))
    told = len(ratios) >= _MIN_TASKS and pairs >= _MIN_PAIRS
    better = names[0] if low > 0 else names[1] if high < 0 else None
    budgets = sorted({row["trials"] for row in rows})
    return {
        "pair": f"{names[0]} / {names[1]}",
        "ratio": exp(middle),
        "low": exp(low) if told else None,
        "high": exp(high) if told else None,
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


def _row(each: Mapping[str, Any]) -> tuple[str, ...]:
    interval = NONE if each["low"] is None else f"{times(each['low'])} to {times(each['high'])}"
    counts = (str(each[name]) for name in ("tasks", "pairs", "trials", "lost"))
    return each["pair"], times(each["ratio"]), interval, *counts


def mean_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the mean of the groups' means and its 95 % interval.

    Groups are drawn with replacement, and then the values of each drawn group: what differs between tasks is no chance
    that more seeds would remove (Efron and Tibshirani 1993, chapter 8). No group is empty.
    """
    sizes = np.array([len(group) for group in groups])
    values = np.zeros((len(groups), sizes.max()))
    for number, group in enumerate(groups):
        values[number, : len(group)] = group
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(groups), size=(_RESAMPLES, len(groups)))
    # Of each drawn group as many values as it has; the rest of the widest group's places counts nothing.
    places = (rng.random((*drawn.shape, values.shape[1])) * sizes[drawn][..., None]).astype(int)
    counts = np.arange(values.shape[1]) < sizes[drawn][..., None]
    means = (values[drawn[..., None], places] * counts).sum(axis=2) / sizes[drawn]
    low, high = np.quantile(means.mean(axis=1), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(np.mean([np.mean(group) for group in groups])), float(low), float(high)
