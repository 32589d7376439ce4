"""Reads a database that somebody else made, or that is damaged: nothing in it is run, and reading it ends soon."""

from __future__ import annotations

import heapq
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from anole.errors import StoreError, shown
from anole.merge import schema

_ROW_BYTES = 4 << 20
"""No row, text or statement may be longer."""

_STEPS, _STEPS_PER_BYTE = 100_000_000, 20
"""SQLite may take so many steps in all: a real database takes about one for each of its bytes."""

_STEPS_AT_ONCE = 100_000

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _ROW_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: _ROW_BYTES,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 10,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

_PRAGMAS = (
    "query_only = on",
    "trusted_schema = off",
    "cell_size_check = on",
    "mmap_size = 0",
    "ignore_check_constraints = on",
)
"""Checks that the file itself brings are not evaluated: its author may have made them endless."""

_ERRORS = (sqlite3.Error, ValueError, OverflowError, RecursionError)
"""Python's module raises errors of its own, such as for a name that is not in UTF-8."""

_FAULTS = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)


_RANKS = {type(None): 0, int: 1, float: 1, str: 2, bytes: 3}
"""In what order SQLite sorts values of each type."""

Key = tuple[Any, ...]
Row = Mapping[str, Any]
Entity = Mapping[str, Sequence[Row]]
"""The rows of several tables that belong together, by the table."""


class UnreadableError(StoreError):
    """A database cannot be read, whoever tries it: it is missing, damaged or not a database."""


def is_fault(error: Exception) -> bool:
    """Whether an error tells of the machine, as a full disk does, and not of what a database holds."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _FAULTS


class UntrustedDatabase:
    """An open database. Every method raises UnreadableError if what it reads is damaged or takes too long."""

    def __init__(self, path: Path, connection: sqlite3.Connection, size_bytes: int) -> None:
        self.path, self.size_bytes = path, size_bytes
        self._connection = connection
        self._spent = limit_steps(connection, size_bytes)
        self._columns: dict[str, list[str]] = {}

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return list(self.each(sql, *parameters))

    def select(self, table: str, columns: Iterable[str], where: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of one of our tables; none if they cannot be read, which is no error."""
        try:
            own = self.columns(table)
            return self.rows(f"select {', '.join(columns)} from {table} {where}", *parameters) if own else []
        except UnreadableError:
            return []

    def each(self, sql: str, *parameters: object, text: Callable[[bytes], object] = str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query; `text` makes values of texts."""
        with _describe(self.path):
            if self._spent():
                raise sqlite3.OperationalError("interrupted")
            self._connection.text_factory = text
            # "yield from" would close the cursor with the generator, perhaps after the connection.
            for row in self._connection.execute(sql, parameters):  # noqa: UP028
                yield row

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Whether each object is a table, a view or a virtual table, by its name."""
        return {row[1]: row[2] for row in self.rows("pragma table_list") if row[0] == "main"}

    @cached_property
    def version(self) -> int:
        """The version of its tables, see `schema.version`."""
        return int(self.rows("pragma user_version")[0][0])

    @property
    def missing_tables(self) -> list[str]:
        """The tables that its version of Anole makes, and that it lacks."""
        needed = schema.columns() if self.version == schema.version() else schema.FIRST_TABLES
        return [table for table in needed if table not in self.kinds]

    def refuse_newer(self, cure: str) -> None:
        """Refuse a database that a newer Anole wrote; the StoreError says which versions are known, and the cure."""
        if self.version > schema.version() and "run" in self.kinds:
            raise StoreError(
                f"{self.path}: was written by a newer Anole (its tables have version {self.version}, and versions up "
                f"to {schema.version()} are known here); {cure}"
            )

    def refuse_others(self) -> None:
        """Refuse a database that has other tables under our names; the StoreError names one."""
        ours = schema.columns()
        named = [table for table in ours if table in self.kinds]
        if named and not any(2 * len({*self.column_names(each)} & {*ours[each]}) > len(ours[each]) for each in named):
            raise StoreError(f"{self.path}: is no database of Anole: its table {named[0]} is another one; name another")

    def columns(self, table: str) -> list[str]:
        """Return those of our columns that a table has; it must be a plain one, and hold values and no expressions."""
        if table in self._columns:
            return self._columns[table]
        self._check_unless_table(table)
        own = self.column_names(table)
        present = [column for column in schema.columns()[table] if column in own]
        hidden = [column for column in present if own[column]]
        if hidden:
            raise UnreadableError(f"{self.path}: table {table}: its column {hidden[0]} is no column")
        self._columns[table] = present
        return present

    def column_names(self, table: str) -> dict[str, bool]:
        """Return all columns of a table, and whether each is computed."""
        return {row[1]: bool(row[6]) for row in self.rows(f"pragma table_xinfo({quote(table)})")}

    def check(self, table: str) -> None:
        """Refuse a table whose pages are damaged, or that has other rows than its index tells."""
        self._check_unless_table(table)
        ((found, *_), *_) = self.rows(f"pragma quick_check({quote(table)})")
        # The check tells of a page that the machine could not read as it tells of one that is damaged.
        if (code := re.search(r"error code=(\d+)", str(found))) and int(code[1]) & 0xFF in _FAULTS:
            fault = sqlite3.OperationalError("disk I/O error")
            fault.sqlite_errorcode = int(code[1])
            raise fault
        counted = {self.rows(f"select count(*) from {quote(table)} {how}")[0] for how in ("", "not indexed")}
        if found == "ok" and len(counted) > 1:
            found = "an index has other rows"
        if found != "ok":
            raise UnreadableError(f"{self.path}: is damaged: table {table}: {shown(' '.join(str(found).split()))}")

    def keys(self, table: str, n_columns: int) -> set[Key]:
        """Return the different values of the first columns of one of our tables."""
        columns = schema.columns()[table][:n_columns]
        for column in columns:
            if column not in self.columns(table):
                raise UnreadableError(f"{self.path}: table {table}: its column {column} is no column")
        return set(self.each(f"select distinct {', '.join(columns)} from {table} not indexed", text=_text))

    def entities(self, *tables: str, n_columns: int = 1, of: str | None = None) -> Iterator[tuple[Key, Entity]]:
        """Yield what belongs together: the rows of some of our tables whose first columns have the same values.

        Each table is read once, in order and without its indexes, which may be damaged. A table that an older version
        lacks has no rows. All values must be known to the table `of`, which is the first one by default: otherwise
        something lacks its rows.
        """
        there = [table for table in tables if table in self.kinds or table in schema.FIRST_TABLES]
        owner = of or tables[0]
        for table in there:
            self.check(table)
            for unknown in self.keys(table, n_columns) - self.keys(owner, n_columns):
                row = " ".join(map(shown, unknown))
                raise UnreadableError(
                    f"{self.path}: table {table}: holds rows of {row}, which is not in the table {owner}"
                )
        grouped = (self._grouped(table, n_columns) for table in there)
        for _, found in groupby(heapq.merge(*grouped, key=itemgetter(0)), key=itemgetter(0)):
            parts = list(found)
            entity: dict[str, Sequence[Row]] = dict.fromkeys(tables, ())
            yield parts[0][1], entity | {table: rows for _, _, table, rows in parts}

    def _grouped(self, table: str, n_columns: int) -> Iterator[tuple[tuple[Any, ...], Key, str, list[Row]]]:
        """Yield the rows of each beginning of a table's key, with what this is sorted by."""
        columns = self.columns(table)
        order = ", ".join(f"{column} collate binary" for column in columns[: n_columns + 1])
        rows = self.each(f"select {', '.join(columns)} from {table} not indexed order by {order}", text=_text)
        for key, group in groupby(rows, key=itemgetter(slice(n_columns))):
            ranks = tuple((_RANKS[type(value)], 0 if value is None else value) for value in key)
            yield ranks, key, table, [dict(zip(columns, row, strict=True)) for row in group]

    def _check_unless_table(self, name: str) -> None:
        if self.kinds.get(name) != "table":
            found = f"a {self.kinds[name]} and not a" if name in self.kinds else "no"
            raise UnreadableError(f"{self.path}: is not a database of trials: {name} is {found} table")


@contextmanager
def opened(path: Path) -> Iterator[UntrustedDatabase]:
    """Open a database for reading, whatever it may hold and be called; no file is made beside it.

    Raises:
        UnreadableError: the file is missing or not a database, or another program is writing to it.
        StoreError: the machine fails while it is read.
    """
    before = _stat(path)
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            with _describe(path):
                for limit, value in _LIMITS.items():
                    connection.setlimit(limit, value)
                for pragma in _PRAGMAS:
                    connection.execute(f"pragma {pragma}")
            yield UntrustedDatabase(path, connection, before.st_size)
    except (sqlite3.Error, MemoryError) as error:
        raise StoreError(f"{path}: {error or 'there is too little memory'}") from error
    if _identity(_stat(path)) != _identity(before):
        raise UnreadableError(f"{path}: was changed while it was read; try again when nobody writes to it")


def limit_steps(connection: sqlite3.Connection, size_bytes: int) -> Callable[[], bool]:
    """End what takes too long for a database of some size; returns what tells whether that has happened."""
    left = (_STEPS + _STEPS_PER_BYTE * size_bytes) // _STEPS_AT_ONCE

    def count() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(count, _STEPS_AT_ONCE)
    return lambda: left < 0


def _text(data: bytes) -> str | bytes:
    """Return a text; bytes that are none in UTF-8 stay bytes, which no record may hold, and other rows can be read."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def quote(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _describe(path: Path) -> Iterator[None]:
    """Name the file in an error that it causes."""
    try:
        yield
    except _ERRORS as error:
        if is_fault(error):
            raise
        raise UnreadableError(f"{path}: {_problem(error)}") from error


def _problem(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT or str(error) == "interrupted":
        return "reading it takes far longer than a file of its size may; it is damaged or was made to harm"
    return f"is damaged, or is not a database of trials: {' '.join(str(error).split())}"


def _stat(path: Path) -> os.stat_result:
    """Return what is known of a file that may be read."""
    try:
        found = os.stat(path)
        journals = [journal.stat() for suffix in ("-journal", "-wal") if (journal := Path(f"{path}{suffix}")).exists()]
    except FileNotFoundError as error:
        raise UnreadableError(f"{path}: there is no such database or folder of shards") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableError(f"{path}: is neither a file nor a folder")
    if any(journal.st_size for journal in journals):
        raise UnreadableError(
            f"{path}: a journal is beside it, so another program is writing to it or was killed; run `anole merge` "
            "where it comes from, and copy it then"
        )
    return found


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
