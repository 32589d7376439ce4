"""The cookbook of the database: descriptions of tables and views in db/README.md, and recipes in db/queries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from anole import workflow

Chart = Mapping[str, Any]
"""A chart as a Vega-Lite specification."""

_CELL = re.compile(r"`([^`]+)`")
_PARAMETER = re.compile(r"'[^']*'|--[^\n]*|(?<![:\w]):([a-z_]+)")
"""A parameter's name; string literals and comments match first, without a group, so their content is skipped."""
_LABEL = re.compile(r"^(Units|n|Measured|Table|Without rows|In short): ", re.MULTILINE)
"""The labels of comment lines that the report uses."""
_TABLES = "trial run task confirmation build evaluation load_latency space model_task model".split()
"""The tables whose columns views use, the most common tables first."""


@dataclass(frozen=True)
class TableDescription:
    """The cookbook's description of a table or view and its columns; a view describes only its own columns."""

    text: str
    columns: Mapping[str, str]
    is_view: bool


@dataclass(frozen=True)
class Recipe:
    """A question to the database: the SQL, labels and chart of a recipe in db/queries.

    Attributes:
        remark: the comment lines without a label.
        parameters: names of its parameters; a parameter that is null selects all rows.
        chart: a chart without its data.
        units: the units of the values, and which direction is better.
        counts: counts to compute from the rows, such as ``count build`` or ``sum runs as run``.
        columns: the columns of its table.
        remedy: advice to users if there are no rows.
        headline: a sentence with columns of the first row in braces.
    """

    name: str
    question: str
    remark: str
    sql: str
    parameters: tuple[str, ...] = ()
    chart: Chart | None = None
    units: str = ""
    counts: tuple[str, ...] = ()
    measured: str = ""
    columns: tuple[str, ...] = ()
    remedy: str = ""
    headline: str = ""


def cookbook() -> Path:
    """Return the folder with README.md and queries/, in the checkout or in the installed package."""
    return workflow.HOME / "db"


def read_recipes(folder: Path) -> dict[str, Recipe]:
    """Return the recipes in a cookbook's folder, by name."""
    return {path.stem: _read_recipe(path) for path in sorted((folder / "queries").glob("*.sql"))}


def read_descriptions(text: str) -> dict[str, TableDescription]:
    """Return the descriptions of tables and views in a cookbook's README."""
    descriptions = {}
    for part, is_view in (("Tables", False), ("Views", True)):
        (body,) = re.findall(rf"^## {part}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        for name, section in re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", body, re.MULTILINE | re.DOTALL):
            descriptions[name] = _parse_description(section, is_view)
    return descriptions


def column_text(descriptions: Mapping[str, TableDescription], name: str, column: str) -> str | None:
    """Return the description of a column, which a view may take from another view or table; None if there is none."""
    views = [view for view, description in descriptions.items() if description.is_view]
    sources = (name, *views, *_TABLES) if descriptions[name].is_view else (name,)
    texts = (descriptions[source].columns.get(column) for source in sources if source in descriptions)
    return next((text for text in texts if text), None)


def _parse_description(section: str, is_view: bool) -> TableDescription:
    text_without_code = re.sub(r"^```.*?^```", "", section, flags=re.MULTILINE | re.DOTALL)
    text = re.split(r"^(?:\||Columns:)", text_without_code, maxsplit=1, flags=re.MULTILINE)[0]
    columns = dict(_view_columns(text_without_code) if is_view else _table_columns(text_without_code))
    return TableDescription(" ".join(text.split()), columns, is_view)


def _table_columns(section: str) -> Iterator[tuple[str, str]]:
    for names, meaning in re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE):
        for name in _CELL.findall(names):
            yield name, meaning


def _view_columns(section: str) -> Iterator[tuple[str, str]]:
    _, _, descriptions = section.partition("Columns:")
    for name, meaning in re.findall(r"`([^`]+)`\s*(?:\(((?:[^()]|\([^()]*\))*)\))?", descriptions):
        yield name, " ".join(meaning.split())


def _read_recipe(path: Path) -> Recipe:
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = list(takewhile(lambda line: line.startswith("--"), lines))
    question, *comment_lines = (line.removeprefix("--").strip() for line in comments)
    remark, *labeled = (" ".join(part.split()) for part in _LABEL.split("\n".join(comment_lines)))
    facts = dict(zip(labeled[::2], labeled[1::2], strict=True))
    sql = "\n".join(lines[len(comments) :]).strip()
    chart = path.with_suffix(".json")
    return Recipe(
        path.stem,
        question,
        remark,
        sql,
        tuple(dict.fromkeys(filter(None, _PARAMETER.findall(sql)))),
        read_chart(chart) if chart.exists() else None,
        units=facts.get("Units", ""),
        counts=tuple(filter(None, facts.get("n", "").split(", "))),
        measured=facts.get("Measured", ""),
        columns=tuple(filter(None, facts.get("Table", "").split(", "))),
        remedy=facts.get("Without rows", ""),
        headline=facts.get("In short", ""),
    )


def read_chart(path: Path) -> Chart:
    """Read a Vega-Lite specification from a file."""
    chart: Chart = json.loads(path.read_text(encoding="utf-8"))
    return chart


def with_empty_as_null(recipe: Recipe) -> str:
    """Return a recipe's SQL for programs that pass an empty string for an unset parameter."""
    return _PARAMETER.sub(lambda match: f"nullif(:{match[1]}, '')" if match[1] else match[0], recipe.sql)
