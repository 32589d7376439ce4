"""A section for a question of the cookbook: its picture, its table and its words, with the rows of this database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from anole.report.cookbook import Recipe
from anole.report.pages.figure import Figure, Lacking, ReportSource, Section, Shown, Table, with_rows
from anole.text_format import NONE, counted, significant

Row = Mapping[str, Any]

_LONGEST = 160
"""Characters of a text that a table shows."""

_ZEROS = re.compile(r"\.?0+(?=e|$)")
"""Digits of a number that its query may have rounded away."""

_UNITS = {"_ms": ", ms", "_s": ", s", "_mb": ", MB", "_utc": " (UTC)"}
"""How the title of a column ends, by the end of its name."""

_COUNTS: Mapping[str, Callable[[Sequence[Any]], int]] = {
    "rows": len,
    "count": lambda values: len(set(values)),
    "sum": sum,
    "max": max,
}


def section_of(recipe: Recipe, reader: str) -> Section:
    """Return the section that answers a question."""
    return Section(recipe.name, recipe.question, reader, partial(_make, recipe))


def _make(recipe: Recipe, source: ReportSource) -> list[Shown]:
    query = source.database.query(recipe.sql, recipe.parameters)
    rows = query.records()
    if not rows:
        return [Lacking(recipe.question, recipe.remedy)]
    first = {column: cell(value) for column, value in rows[0].items()}
    return [
        Figure(
            recipe.question,
            recipe.units,
            f"{', '.join(_counted(count, rows) for count in recipe.counts)}.",
            recipe.measured,
            (query,),
            _table(recipe.columns, rows) if recipe.columns else None,
            recipe.chart and with_rows(recipe.chart, rows),
            headline=recipe.headline.format_map(first),
        )
    ]


def _counted(count: str, rows: Sequence[Row]) -> str:
    """Return what is counted of rows, such as ``3 builds`` for ``count build``."""
    how, _, noun = count.partition(" as ")
    function, _, column = how.partition(" ")
    number = _COUNTS[function]([row[column] for row in rows] if column else rows)
    return ("at most " if function == "max" else "") + counted(number, noun or column.removesuffix("s"))


def _table(columns: Sequence[str], rows: Sequence[Row]) -> Table:
    """Return the columns that have a value in any row."""
    kept = [column for column in columns if any(row[column] is not None for row in rows)]
    return Table.of(map(_title, kept), ([cell(row[column]) for column in kept] for row in rows))


def _title(column: str) -> str:
    end = next((end for end in _UNITS if column.endswith(end)), "")
    return column.removesuffix(end).replace("_", " ") + _UNITS.get(end, "")


def cell(value: Any) -> str:
    """Return a value of the database for people."""
    if value is None:
        return NONE
    if isinstance(value, float):
        text = significant(value)
        return _ZEROS.sub("", text) if "." in text else text
    if isinstance(value, int):
        return f"{value:,}"
    return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
