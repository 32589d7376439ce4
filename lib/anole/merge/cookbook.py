"""The cookbook of the database: what db/README.md says of each table, view and column, and the queries beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anole import workflow

_CELL = re.compile(r"`([^`]+)`")
_PARAMETER = re.compile(r"'[^']*'|--[^\n]*|(?<![:\w]):([a-z_]+)")
"""A parameter's name, or a text or a comment, in which none is looked for."""
_TABLES = (
    "trial",
    "run",
    "task",
    "confirmation",
    "build",
    "evaluation",
    "load_latency",
    "space",
    "model_task",
    "model",
)
"""The tables that views take columns from, those first that most do."""


@dataclass(frozen=True)
class Description:
    """What the cookbook says of a table or a view.

    Attributes:
        text: what it is, in Markdown.
        columns: what each column is, in Markdown; a view says it only of those that no table has.
        is_view: whether it is a view.
    """

    text: str
    columns: Mapping[str, str]
    is_view: bool


@dataclass(frozen=True)
class Query:
    """A query of the cookbook.

    Attributes:
        name: the name of its file.
        question: the question that it answers.
        remark: what else its first lines say; may be empty.
        sql: the statement.
        parameters: names of its parameters; null stands for all.
    """

    name: str
    question: str
    remark: str
    sql: str
    parameters: tuple[str, ...]


def cookbook() -> Path:
    """Returns the folder with README.md and queries/: the checkout's, or the one within the installed package."""
    return workflow.HOME / "db"


def read_queries(folder: Path) -> list[Query]:
    """Returns the queries of a cookbook's folder, by name."""
    return [_query(path.stem, path.read_text(encoding="utf-8")) for path in sorted((folder / "queries").glob("*.sql"))]


def read_descriptions(text: str) -> dict[str, Description]:
    """Returns what a cookbook's README says of each table and view."""
    found = {}
    for part, is_view in (("Tables", False), ("Views", True)):
        (body,) = re.findall(rf"^## {part}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        for name, section in re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", body, re.MULTILINE | re.DOTALL):
            found[name] = _description(section, is_view)
    return found


def column_text(descriptions: Mapping[str, Description], name: str, column: str) -> str | None:
    """Returns what a column of a table or a view is, by another one's where a view's own does not say; or None."""
    views = [each for each, description in descriptions.items() if description.is_view]
    places = (name, *views, *_TABLES) if descriptions[name].is_view else (name,)
    texts = (descriptions[place].columns.get(column) for place in places if place in descriptions)
    return next((text for text in texts if text), None)


def _description(section: str, is_view: bool) -> Description:
    plain = re.sub(r"^```.*?^```", "", section, flags=re.MULTILINE | re.DOTALL)
    text = re.split(r"^(?:\||Columns:)", plain, maxsplit=1, flags=re.MULTILINE)[0]
    columns = dict(_of_view(plain) if is_view else _of_table(plain))
    return Description(" ".join(text.split()), columns, is_view)


def _of_table(section: str) -> Iterator[tuple[str, str]]:
    for names, meaning in re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE):
        for name in _CELL.findall(names):
            yield name, meaning


def _of_view(section: str) -> Iterator[tuple[str, str]]:
    _, _, listed = section.partition("Columns:")
    for name, meaning in re.findall(r"`([^`]+)`\s*(?:\(((?:[^()]|\([^()]*\))*)\))?", listed):
        yield name, " ".join(meaning.split())


def _query(name: str, text: str) -> Query:
    lines = text.splitlines()
    n_comments = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    question, *remarks = (line.removeprefix("--").strip() for line in lines[:n_comments])
    sql = "\n".join(lines[n_comments:]).strip()
    parameters = tuple(dict.fromkeys(filter(None, _PARAMETER.findall(sql))))
    return Query(name, question, " ".join(remarks), sql, parameters)


def with_empty_as_null(query: Query) -> str:
    """Returns a query's statement for programs that give an empty text for a parameter that is not set."""
    return _PARAMETER.sub(lambda found: f"nullif(:{found[1]}, '')" if found[1] else found[0], query.sql)
