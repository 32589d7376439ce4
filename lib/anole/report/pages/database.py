"""Read-only access to the database for the report; each query is kept with its result."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import quote

from anole.errors import StoreError

_LIMIT_S = 120.0
"""The time limit of a query: databases, including their views, may come from untrusted sources."""

_STEPS = 100_000
"""The number of SQLite's VM instructions between two checks of the time limit."""


class OutdatedDatabaseError(StoreError):
    """The database of an older version of Anole has no such table or column."""


@dataclass(frozen=True)
class Query:
    """A query as it was run, with null for its parameters, and its result."""

    sql: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Database(AbstractContextManager["Database"]):
    """A context manager for reading a database, never writing to it.

    Raises:
        StoreError: there is no database, or it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise StoreError(f"{path}: there is no database; `anole merge` creates it")
        self._path = path
        self._connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def query(self, sql: str, parameters: Sequence[str] = ()) -> Query:
        """Run a query with null for each of its parameters.

        Raises:
            OutdatedDatabaseError: the database is from an older version.
            StoreError: the database cannot be read, or the query takes too long.
        """
        sql = dedent(sql).strip()
        end_s = time.monotonic() + _LIMIT_S
        self._connection.set_progress_handler(lambda: time.monotonic() > end_s, _STEPS)
        try:
            cursor = self._connection.execute(sql, dict.fromkeys(parameters))
            rows = tuple(cursor.fetchall())
        except sqlite3.Error as error:
            if str(error).startswith(("no such table", "no such column")):
                raise OutdatedDatabaseError(
                    f"{self._path}: {error}; `anole merge` updates a database of an older version"
                ) from error
            problem = f"a query took more than {_LIMIT_S:g} s" if str(error) == "interrupted" else str(error)
            raise StoreError(f"{self._path}: cannot be read: {problem}") from error
        finally:
            self._connection.set_progress_handler(None, 0)
        return Query(sql, tuple(name for name, *_ in cursor.description), rows)
