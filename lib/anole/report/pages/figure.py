"""What a section of the report consists of: figures, each with its query, its units and its numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anole.report.cookbook import Chart
from anole.report.pages.database import Database, Query

MAX_ROWS = 60
"""The most rows of a table that the page shows."""


@dataclass(frozen=True)
class Table:
    """A table of text, of whose rows at most `MAX_ROWS` are shown."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, columns: Iterable[str], rows: Iterable[Sequence[str]]) -> Table:
        """Return a table of any sequences."""
        return cls(tuple(columns), tuple(map(tuple, rows)))


@dataclass(frozen=True)
class Download:
    """A text that readers can save as a file."""

    name: str
    text: str


@dataclass(frozen=True)
class Figure:
    """One figure: a picture, a table or both.

    Attributes:
        units: the units of what is shown, and which direction is better.
        n: how much it was made from.
        method: how it was measured, and what was computed from the query's rows.
        queries: the queries behind it; none where the figures are not the database's.
        downloads: files that belong to it.
        headline: what the summary on top of the page says of it, in one sentence.
    """

    title: str
    units: str
    n: str
    method: str
    queries: tuple[Query, ...]
    table: Table | None = None
    chart: Chart | None = None
    downloads: tuple[Download, ...] = ()
    headline: str = ""


@dataclass(frozen=True)
class Lacking:
    """A figure that cannot be made, and what would fill it, in one line."""

    title: str
    remedy: str


Shown = Figure | Lacking


@dataclass(frozen=True)
class ReportSource:
    """What a report is made from: the records, the project's folder, and its models.yaml, if there is one."""

    database: Database
    project: Path
    spec: Path | None = None


@dataclass(frozen=True)
class Section:
    """A section of the report.

    Attributes:
        key: its anchor in the page.
        title: the question that it answers.
        reader: whom it is for, a key of `READERS`.
        make: makes its figures.
    """

    key: str
    title: str
    reader: str
    make: Callable[[ReportSource], Sequence[Shown]] = field(hash=False)


def with_rows(chart: Chart, rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Return a picture with its rows, of which it has only what it names."""
    named = set(re.findall(r"\w+", json.dumps(chart)))
    values = [{name: value for name, value in row.items() if name in named} for row in rows]
    return {**chart, "data": {"values": values}}


READERS: Mapping[str, str] = {
    "deployment": "For deployment engineers",
    "research": "For researchers",
    "hardware": "For hardware designers",
}
"""The readers, in the order of the page."""
