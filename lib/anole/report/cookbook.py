"""The cookbook of the database: what db/README.md says of each table and view, and the questions beside it."""

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
"""A picture in Vega-Lite's language."""

_CELL = re.compile(r"`([^`]+)`")
_PARAMETER = re.compile(r"'[^']*'|--[^\n]*|(?<![:\w]):([a-z_]+)")
"""A parameter's name, or a text or a comment, in which none is looked for."""
_LABEL = re.compile(r"^(Units|n|Measured|Table|Without rows|In short): ", re.MULTILINE)
"""What begins the lines that the report says of a question's rows."""
_TABLES = "trial run task confirmation build evaluation load_latency space model_task model".split()
"""The tables that views take columns from, those first that most do."""


@dataclass(frozen=True)
class TableDescription:
    """What the cookbook says of a table or a view, and of its columns; a view only of those that no table has."""

    text: str
    columns: Mapping[str, str]
    is_view: bool


@dataclass(frozen=True)
class Recipe:
    """A question to the database, with all that its file says of it and the picture beside it.

    Attributes:
        remark: what else the first lines say.
        parameters: names of its parameters; null stands for all.
        chart: a picture of the rows, without them.
        units: of what is shown, and which direction is better.
        counts: what of the rows is counted, such as ``count build`` or ``sum runs as run``.
        columns: those that a table shows.
        remedy: what would fill it if there are no rows.
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
    """Return the folder with README.md and queries/: the checkout's, or the one within the installed package."""
    return workflow.HOME / "db"


def read_recipes(folder: Path) -> dict[str, Recipe]:
    """Return the questions of a cookbook's folder by their names."""
    return {path.stem: _recipe(path) for path in sorted((folder / "queries").glob("*.sql"))}


def read_descriptions(text: str) -> dict[str, TableDescription]:
    """Return what a cookbook's README says of each table and view."""
    found = {}
    for part, is_view in (("Tables", False), ("Views", True)):
        (body,) = re.findall(rf"^## {part}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        for name, section in re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", body, re.MULTILINE | re.DOTALL):
            found[name] = _description(section, is_view)
    return found


def column_text(descriptions: Mapping[str, TableDescription], name: str, column: str) -> str | None:
    """Return what a column of a table or a view is, by another one's where a view's own does not say; or None."""
    views = [each for each, description in descriptions.items() if description.is_view]
    places = (name, *views, *_TABLES) if descriptions[name].is_view else (name,)
    texts = (descriptions[place].columns.get(column) for place in places if place in descriptions)
    return next((text for text in texts if text), None)


def _description(section: str, is_view: bool) -> TableDescription:
    plain = re.sub(r"^```.*?^```", "", section, flags=re.MULTILINE | re.DOTALL)
    text = re.split(r"^(?:\||Columns:)", plain, maxsplit=1, flags=re.MULTILINE)[0]
    columns = dict(_of_view(plain) if is_view else _of_table(plain))
    return TableDescription(" ".join(text.split()), columns, is_view)


def _of_table(section: str) -> Iterator[tuple[str, str]]:
    for names, meaning in re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE):
        for name in _CELL.findall(names):
            yield name, meaning


def _of_view(section: str) -> Iterator[tuple[str, str]]:
    _, _, listed = section.partition("Columns:")
    for name, meaning in re.findall(r"`([^`]+)`\s*(?:\(((?:[^()]|\([^()]*\))*)\))?", listed):
        yield name, " ".join(meaning.split())


def _recipe(path: Path) -> Recipe:
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = list(takewhile(lambda line: line.startswith("--"), lines))
    question, *others = (line.removeprefix("--").strip() for line in comments)
    remark, *labeled = (" ".join(part.split()) for part in _LABEL.split("\n".join(others)))
    told = dict(zip(labeled[::2], labeled[1::2], strict=True))
    sql = "\n".join(lines[len(comments) :]).strip()
    chart = path.with_suffix(".json")
    return Recipe(
        path.stem,
        question,
        remark,
        sql,
        tuple(dict.fromkeys(filter(None, _PARAMETER.findall(sql)))),
        read_chart(chart) if chart.exists() else None,
        units=told.get("Units", ""),
        counts=tuple(filter(None, told.get("n", "").split(", "))),
        measured=told.get("Measured", ""),
        columns=tuple(filter(None, told.get("Table", "").split(", "))),
        remedy=told.get("Without rows", ""),
        headline=told.get("In short", ""),
    )


def read_chart(path: Path) -> Chart:
    """Return the picture in a file, in Vega-Lite's language."""
    chart: Chart = json.loads(path.read_text(encoding="utf-8"))
    return chart


def with_empty_as_null(recipe: Recipe) -> str:
    """Return a recipe's statement for programs that give an empty text for a parameter that is not set."""
    return _PARAMETER.sub(lambda found: f"nullif(:{found[1]}, '')" if found[1] else found[0], recipe.sql)
