"""Read an untrusted or damaged database: no code in it is executed, and reading time is limited."""

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

_MAX_ROW_BYTES = 4 << 20
"""Maximum size of a row, text or statement."""

_BASE_STEPS, _STEPS_PER_BYTE = 100_000_000, 20
"""Maximum number of steps of SQLite's virtual machine: a base, and more per byte; real files take 1 step per byte."""

_STEPS_PER_CHECK = 100_000

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _MAX_ROW_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: _MAX_ROW_BYTES,
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
"""CHECK constraints of the file are not evaluated, because they may never end."""

_ERRORS = (sqlite3.Error, ValueError, OverflowError, RecursionError)
"""Python's sqlite3 also raises errors of its own, for example for a name that is not in UTF-8."""

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


_TYPE_RANKS = {type(None): 0, int: 1, float: 1, str: 2, bytes: 3}
"""SQLite's sort order of types."""

Key = tuple[Any, ...]
Row = Mapping[str, Any]
Entity = Mapping[str, Sequence[Row]]
"""The rows of one run, task or document, by table."""


class UnreadableError(StoreError):
    """A file cannot be read as a database on any machine: it is missing, damaged, being written or not a database."""


def is_machine_fault(error: Exception) -> bool:
    """Whether an error is caused by the machine, such as a full disk, and not by the content of a database."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _FAULTS


class UntrustedDatabase:
    """A database open for reading. Methods except `select` raise UnreadableError if it is damaged or takes too long."""

    def __init__(self, path: Path, connection: sqlite3.Connection, size_bytes: int) -> None:
        self.path, self.size_bytes = path, size_bytes
        self._connection = connection
        self._is_limit_reached = limit_steps(connection, size_bytes)
        self._columns: dict[str, list[str]] = {}

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return list(self.each(sql, *parameters))

    def select(self, table: str, columns: Iterable[str], where: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return rows of one of Anole's tables; none if they cannot be read."""
        try:
            present = self.columns(table)
            return self.rows(f"select {', '.join(columns)} from {table} {where}", *parameters) if present else []
        except UnreadableError:
            return []

    def each(self, sql: str, *parameters: object, text: Callable[[bytes], object] = str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query; `text` decodes text values."""
        with _convert_errors(self.path):
            if self._is_limit_reached():
                raise sqlite3.OperationalError("interrupted")
            self._connection.text_factory = text
            # "yield from" would close the cursor with the generator, perhaps after the connection.
            for row in self._connection.execute(sql, parameters):  # noqa: UP028
                yield row

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The kind of each object by name, such as table, view or virtual."""
        return {row[1]: row[2] for row in self.rows("pragma table_list") if row[0] == "main"}

    @cached_property
    def version(self) -> int:
        """The version of the tables, see `schema.version`."""
        return int(self.rows("pragma user_version")[0][0])

    @property
    def missing_tables(self) -> list[str]:
        """The tables that its version of Anole creates but that do not exist."""
        expected = schema.columns() if self.version == schema.version() else schema.FIRST_TABLES
        return [table for table in expected if table not in self.kinds]

    def check_version(self, remedy: str) -> None:
        """Raise StoreError for a database that a newer Anole wrote; the message ends with a remedy."""
        if self.version > schema.version() and "run" in self.kinds:
            raise StoreError(
                f"{self.path}: was written by a newer Anole (its tables have version {self.version}; this Anole "
                f"supports versions up to {schema.version()}); {remedy}"
            )

    def check_is_anole(self) -> None:
        """Raise StoreError for a database of another program whose tables have the same names."""
        expected = schema.columns()
        tables = [table for table in expected if table in self.kinds]
        if tables and not any(2 * len({*self.column_names(t)} & {*expected[t]}) > len(expected[t]) for t in tables):
            problem = f"is not a database of Anole: its table {tables[0]} has other columns; use another file"
            raise StoreError(f"{self.path}: {problem}")

    def columns(self, table: str) -> list[str]:
        """Return the columns of Anole that a table has; it must be a plain table without generated columns."""
        if table in self._columns:
            return self._columns[table]
        self._check_is_table(table)
        is_generated = self.column_names(table)
        present = [column for column in schema.columns()[table] if column in is_generated]
        generated = [column for column in present if is_generated[column]]
        if generated:
            raise UnreadableError(f"{self.path}: table {table}: its column {generated[0]} is a generated column")
        self._columns[table] = present
        return present

    def column_names(self, table: str) -> dict[str, bool]:
        """Return all columns of a table, and whether each is a generated column."""
        return {row[1]: bool(row[6]) for row in self.rows(f"pragma table_xinfo({quote(table)})")}

    def check(self, table: str) -> None:
        """Raise UnreadableError for a table with damaged pages, or with rows that differ from its index."""
        self._check_is_table(table)
        ((result, *_), *_) = self.rows(f"pragma quick_check({quote(table)})")
        # The check reports pages that the machine could not read as if they were damaged.
        if (code := re.search(r"error code=(\d+)", str(result))) and int(code[1]) & 0xFF in _FAULTS:
            fault = sqlite3.OperationalError("disk I/O error")
            fault.sqlite_errorcode = int(code[1])
            raise fault
        counts = {self.rows(f"select count(*) from {quote(table)} {clause}")[0] for clause in ("", "not indexed")}
        if result == "ok" and len(counts) > 1:
            result = "an index has other rows"
        if result != "ok":
            raise UnreadableError(f"{self.path}: is damaged: table {table}: {shown(' '.join(str(result).split()))}")

    def keys(self, table: str, n_columns: int) -> set[Key]:
        """Return the distinct values in the first columns of a table that Anole defines."""
        columns = schema.columns()[table][:n_columns]
        for column in columns:
            if column not in self.columns(table):
                raise UnreadableError(f"{self.path}: table {table}: has no column {column}")
        return set(self.each(f"select distinct {', '.join(columns)} from {table} not indexed", text=_decode_text))

    def entities(self, *tables: str, n_columns: int = 1, of: str | None = None) -> Iterator[tuple[Key, Entity]]:
        """Yield the rows of tables that Anole defines, grouped by the values in their first columns.

        Each table is read once, in order and without its indexes, which may be damaged. Tables that an older version
        does not have count as empty. All key values must exist in the table `of`, by default the first one; otherwise
        rows are missing there.
        """
        existing_tables = [table for table in tables if table in self.kinds or table in schema.FIRST_TABLES]
        owner = of or tables[0]
        for table in existing_tables:
            self.check(table)
            for unknown in self.keys(table, n_columns) - self.keys(owner, n_columns):
                row = " ".join(map(shown, unknown))
                raise UnreadableError(
                    f"{self.path}: table {table}: holds rows of {row}, which is not in the table {owner}"
                )
        groups = (self._rows_by_key(table, n_columns) for table in existing_tables)
        for _, group in groupby(heapq.merge(*groups, key=itemgetter(0)), key=itemgetter(0)):
            members = list(group)
            entity: dict[str, Sequence[Row]] = dict.fromkeys(tables, ())
            yield members[0][1], entity | {table: rows for _, _, table, rows in members}

    def _rows_by_key(self, table: str, n_columns: int) -> Iterator[tuple[tuple[Any, ...], Key, str, list[Row]]]:
        """Yield the rows of each key prefix of a table, with the sort key, the prefix and the table."""
        columns = self.columns(table)
        order = ", ".join(f"{column} collate binary" for column in columns[: n_columns + 1])
        rows = self.each(f"select {', '.join(columns)} from {table} not indexed order by {order}", text=_decode_text)
        for key, group in groupby(rows, key=itemgetter(slice(n_columns))):
            ranks = tuple((_TYPE_RANKS[type(value)], 0 if value is None else value) for value in key)
            yield ranks, key, table, [dict(zip(columns, row, strict=True)) for row in group]

    def _check_is_table(self, name: str) -> None:
        if self.kinds.get(name) != "table":
            description = f"a {self.kinds[name]} and not a" if name in self.kinds else "no"
            raise UnreadableError(f"{self.path}: is not a database of trials: {name} is {description} table")


@contextmanager
def open_database(path: Path) -> Iterator[UntrustedDatabase]:
    """Open a database for reading, whatever its content and name; no file is created next to it.

    Raises:
        UnreadableError: the file is missing or not a database, or another program is writing to it.
        StoreError: the machine fails while the file is read.
    """
    before = _stat(path)
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            with _convert_errors(path):
                for limit, value in _LIMITS.items():
                    connection.setlimit(limit, value)
                for pragma in _PRAGMAS:
                    connection.execute(f"pragma {pragma}")
            yield UntrustedDatabase(path, connection, before.st_size)
    except (sqlite3.Error, MemoryError) as error:
        raise StoreError(f"{path}: {error or 'out of memory'}") from error
    if _fingerprint(_stat(path)) != _fingerprint(before):
        raise UnreadableError(f"{path}: was changed while it was read; try again when no program writes to it")


def limit_steps(connection: sqlite3.Connection, size_bytes: int) -> Callable[[], bool]:
    """Limit the steps of a connection by the size of its file; return a predicate for whether the limit was reached."""
    left = (_BASE_STEPS + _STEPS_PER_BYTE * size_bytes) // _STEPS_PER_CHECK

    def count_down() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(count_down, _STEPS_PER_CHECK)
    return lambda: left < 0


def _decode_text(data: bytes) -> str | bytes:
    """Decode a text; invalid UTF-8 stays bytes, which no record accepts, so other rows can still be read."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def quote(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _convert_errors(path: Path) -> Iterator[None]:
    """Convert errors that the file causes to UnreadableError, with its path."""
    try:
        yield
    except _ERRORS as error:
        if is_machine_fault(error):
            raise
        raise UnreadableError(f"{path}: {_describe_error(error)}") from error


def _describe_error(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT or str(error) == "interrupted":
        return "reading it takes far longer than expected for its size; it is damaged or malicious"
    return f"is damaged, or is not a database of trials: {' '.join(str(error).split())}"


def _stat(path: Path) -> os.stat_result:
    """Return the status of a database file; raise an error unless it can be read."""
    try:
        status = os.stat(path)
        journals = [journal.stat() for suffix in ("-journal", "-wal") if (journal := Path(f"{path}{suffix}")).exists()]
    except FileNotFoundError as error:
        raise UnreadableError(f"{path}: there is no such database or folder of shards") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError(f"{path}: is neither a file nor a folder")
    if any(journal.st_size for journal in journals):
        raise UnreadableError(
            f"{path}: has a journal, because another program is writing to it or was killed; run `anole merge` "
            "where it comes from, and copy it then"
        )
    return status


def _fingerprint(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
