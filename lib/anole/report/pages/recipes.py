"""A section for a recipe of the cookbook: its chart, table and text, with the rows of the database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from anole.report.cookbook import Recipe
from anole.report.pages.figure import Figure, MissingData, ReportSource, Section, Shown, Table, with_rows
from anole.text_format import NONE, pluralize, significant

Row = Mapping[str, Any]

_MAX_CELL_LENGTH = 160
"""The maximum length of a text in a table."""

_ZEROS = re.compile(r"\.?0+(?=e|$)")
"""Trailing zeros, which may be the result of rounding in the query."""

_UNITS = {"_ms": ", ms", "_s": ", s", "_mb": ", MB", "_utc": " (UTC)"}
"""The suffix of a column's title, by the suffix of its name."""

_COUNT_FUNCTIONS: Mapping[str, Callable[[Sequence[Any]], int]] = {
    "rows": len,
    "count": lambda values: len(set(values)),
    "sum": sum,
    "max": max,
}


def section_of(recipe: Recipe, reader: str) -> Section:
    """Return the section of a recipe."""
    return Section(recipe.name, recipe.question, reader, partial(_make, recipe))


def _make(recipe: Recipe, source: ReportSource) -> list[Shown]:
    query = source.database.query(recipe.sql, recipe.parameters)
    rows = query.records()
    if not rows:
        return [MissingData(recipe.question, recipe.remedy)]
    first = {column: cell(value) for column, value in rows[0].items()}
    return [
        Figure(
            recipe.question,
            recipe.units,
            f"{', '.join(_format_count(count, rows) for count in recipe.counts)}.",
            recipe.measured,
            (query,),
            _table(recipe.columns, rows) if recipe.columns else None,
            recipe.chart and with_rows(recipe.chart, rows),
            headline=recipe.headline.format_map(first),
        )
    ]


def _format_count(count: str, rows: Sequence[Row]) -> str:
    """Return a count of rows as text, such as ``3 builds`` for ``count build``."""
    formula, _, noun = count.partition(" as ")
    function, _, column = formula.partition(" ")
    number = _COUNT_FUNCTIONS[function]([row[column] for row in rows] if column else rows)
    return ("at most " if function == "max" else "") + pluralize(number, noun or column.removesuffix("s"))


def _table(columns: Sequence[str], rows: Sequence[Row]) -> Table:
    """Return the table of the columns that have a value in any row."""
    shown_columns = [column for column in columns if any(row[column] is not None for row in rows)]
    return Table.of(map(_title, shown_columns), ([cell(row[column]) for column in shown_columns] for row in rows))


def _title(column: str) -> str:
    suffix = next((suffix for suffix in _UNITS if column.endswith(suffix)), "")
    return column.removesuffix(suffix).replace("_", " ") + _UNITS.get(suffix, "")


def cell(value: Any) -> str:
    """Format a value of the database for people."""
    if value is None:
        return NONE
    if isinstance(value, float):
        text = significant(value)
        return _ZEROS.sub("", text) if "." in text else text
    if isinstance(value, int):
        return f"{value:,}"
    return value if len(value) <= _MAX_CELL_LENGTH else f"{value[:_MAX_CELL_LENGTH]}…"
