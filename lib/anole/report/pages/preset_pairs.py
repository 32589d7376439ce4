"""A section that compares each pair of presets on the tasks and seeds that both tuned, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from anole.report.cookbook import Recipe, read_chart
from anole.report.pages.figure import Figure, MissingData, ReportSource, Section, Shown, Table, with_rows
from anole.text_format import NONE, pluralize, times

_MIN_TASKS, _MIN_PAIRS = 3, 5
"""Min numbers for a bootstrap interval: the interval of a single task contains no variation between tasks."""

_N_RESAMPLES = 2000
_CONFIDENCE = 0.95


def pairs_section(recipe: Recipe, reader: str) -> Section:
    """Return the section for the recipe ``preset_pairs``."""

    def make(source: ReportSource) -> list[Shown]:
        query = source.database.query(recipe.sql)
        pairs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in query.records():
            pairs.setdefault((row["one"], row["other"]), []).append(row)
        results = [pair for names, rows in pairs.items() if (pair := _compare(names, rows)) is not None]
        if not results:
            return [MissingData(recipe.question, recipe.remedy)]
        figure = Figure(
            recipe.question,
            recipe.units,
            f"{pluralize(len(query.rows), 'pair')} of runs of one task with one seed.",
            f"{recipe.measured} Geometric mean over tasks, each the mean of its seeds. The interval contains "
            f"{_CONFIDENCE:.0%} of {_N_RESAMPLES} bootstrap samples of the logarithms, by task and then by seed; with "
            f"fewer than {_MIN_TASKS} tasks or {_MIN_PAIRS} pairs there is none. The chart shows at most 40 pairs.",
            (query,),
            Table.of(("pair", "ratio", "95 % interval", "tasks", "pairs", "trials", "one failed"), map(_row, results)),
            with_rows(read_chart(Path(__file__).with_suffix(".json")), results),
            headline=f"{sum('better' in pair['verdict'] for pair in results)} of "
            f"{pluralize(len(results), 'pair')} of presets differ significantly.",
        )
        return [figure]

    return Section(recipe.name, recipe.question, reader, make)


def _compare(names: tuple[str, str], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the comparison of two presets; None if they have no task for which both found a config."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row["one_latency_s"] and row["other_latency_s"]:
            ratios.setdefault(row["task_key"], []).append(log(row["other_latency_s"] / row["one_latency_s"]))
    if not ratios:
        return None
    pairs = sum(map(len, ratios.values()))
    estimate, low, high = mean_interval(list(ratios.values()))
    is_enough = len(ratios) >= _MIN_TASKS and pairs >= _MIN_PAIRS
    better = names[0] if low > 0 else names[1] if high < 0 else None
    budgets = sorted({row["trials"] for row in rows})
    return {
        "pair": f"{names[0]} / {names[1]}",
        "ratio": exp(estimate),
        "low": exp(low) if is_enough else None,
        "high": exp(high) if is_enough else None,
        "verdict": "too few tasks or pairs"
        if not is_enough
        else "no significant difference"
        if better is None
        else f"{better} is better",
        "tasks": len(ratios),
        "pairs": pairs,
        "trials": f"{budgets[0]}" if len(budgets) == 1 else f"{budgets[0]} to {budgets[-1]}",
        "lost": len(rows) - pairs,
    }


def _row(pair: Mapping[str, Any]) -> tuple[str, ...]:
    interval = NONE if pair["low"] is None else f"{times(pair['low'])} to {times(pair['high'])}"
    counts = (str(pair[name]) for name in ("tasks", "pairs", "trials", "lost"))
    return pair["pair"], times(pair["ratio"]), interval, *counts


def mean_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the mean of the groups' means and its 95 % interval.

    Groups are resampled with replacement, and then the values within each resampled group, because more seeds would not
    reduce the variation between tasks (Efron and Tibshirani 1993, chapter 8). No group is empty.
    """
    sizes = np.array([len(group) for group in groups])
    values = np.zeros((len(groups), sizes.max()))
    for number, group in enumerate(groups):
        values[number, : len(group)] = group
    rng = np.random.default_rng(0)
    resampled = rng.integers(len(groups), size=(_N_RESAMPLES, len(groups)))
    # As many values as each resampled group has; `counts` masks the padding up to the largest group.
    positions = (rng.random((*resampled.shape, values.shape[1])) * sizes[resampled][..., None]).astype(int)
    counts = np.arange(values.shape[1]) < sizes[resampled][..., None]
    means = (values[resampled[..., None], positions] * counts).sum(axis=2) / sizes[resampled]
    low, high = np.quantile(means.mean(axis=1), [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return float(np.mean([np.mean(group) for group in groups])), float(low), float(high)
