"""The parts of a section of the report: figures with their queries, units, tables and charts."""

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
"""The maximum number of rows of a table on the page."""


@dataclass(frozen=True)
class Table:
    """A table of text; the page shows at most `MAX_ROWS` rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, columns: Iterable[str], rows: Iterable[Sequence[str]]) -> Table:
        """Return a table of arbitrary sequences."""
        return cls(tuple(columns), tuple(map(tuple, rows)))


@dataclass(frozen=True)
class Download:
    """A text to save as a file."""

    name: str
    text: str


@dataclass(frozen=True)
class Figure:
    """A figure: a chart, a table or both.

    Attributes:
        units: the units of the values, and which direction is better.
        n: the sample size, in words.
        method: the measurement and computation of the values.
        queries: its queries; none if the data does not come from the database.
        headline: its sentence in the summary at the top of the page; empty for none.
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
class MissingData:
    """A figure without data, and one line of advice to get the data."""

    title: str
    remedy: str


Shown = Figure | MissingData


@dataclass(frozen=True)
class ReportSource:
    """The sources of a report: the database, the project's folder, and its models.yaml, if there is one."""

    database: Database
    project: Path
    spec: Path | None = None


@dataclass(frozen=True)
class Section:
    """A section of the report.

    Attributes:
        key: its anchor in the page.
        title: the question that it answers.
        reader: its audience, a key of `READERS`.
        make: returns its figures.
    """

    key: str
    title: str
    reader: str
    make: Callable[[ReportSource], Sequence[Shown]] = field(hash=False)


def with_rows(chart: Chart, rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Return a chart with its rows, reduced to the columns that it uses."""
    words = set(re.findall(r"\w+", json.dumps(chart)))
    values = [{name: value for name, value in row.items() if name in words} for row in rows]
    return {**chart, "data": {"values": values}}


READERS: Mapping[str, str] = {
    "deployment": "For deployment engineers",
    "research": "For researchers",
    "hardware": "For hardware designers",
}
"""The audiences, in the order of the page."""
