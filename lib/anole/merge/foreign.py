"""Reads the runs of a database that somebody else made: nothing in it is run, and reading it ends soon."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, cast

from sqlite_utils import Database

from anole.documents.plain import Misfit, from_plain, json_fields, parse_json
from anole.errors import StoreError, shown
from anole.keys import canonical_json
from anole.merge.checksums import checksum, stored
from anole.merge.merged import Entity
from anole.merge.migrations import known_migrations, migrations
from anole.record import Confirmation, Run, Source, SpaceFacts, Trial
from anole.store.content import SCHEMA, Head, Iteration, WarmStart

T = TypeVar("T")

Row = dict[str, Any]

_HEADER = b"SQLite format 3\0"

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
    "temp_store = memory",
    "ignore_check_constraints = on",
)
"""Checks that the file itself brings are not evaluated: its author may have made them endless."""

_KEYS = {
    "task": "key",
    "space": "task_key",
    "run": "key",
    "warm_start": "run_key",
    "iteration": "run_key",
    "trial": "run_key",
    "confirmation": "run_key",
}
"""The tables that are read, and the column by which each belongs to a task or a run."""

_NEEDED = frozenset({"task", "run", "trial", "confirmation", "iteration"})
"""Tables that every version has made."""


def read_runs(database: Path) -> Iterator[tuple[str, list[object]]]:
    """Yields the key of every run in a database, and the records that its shard would hold, the head first.

    The file is only read, and no file is made beside it. Views, triggers, virtual tables and generated columns in it
    are not evaluated. Every value is checked by the types of the records, and the rows of each run and task by the
    checksums that the last merge stored, which databases of older versions lack.

    Raises:
        StoreError: the file is missing, damaged, too new or not a database of trials; the message names the table
            and the row.
    """
    with opened(database) as connection:
        tables = _tables(connection, database)
        for table in tables:
            _check(connection, database, table)
        groups = {table: _Grouped(connection, database, table, columns) for table, columns in tables.items()}
        tasks = {row["key"]: row for row in groups["task"].all()}
        spaces = {row["task_key"]: row for row in groups["space"].all()} if "space" in groups else {}
        known = _checksums(connection, database)
        for key in tasks:
            _verify(connection, database, ("task", key), known)
        for run in groups["run"].all():
            records = _records(database, run, tasks, spaces, groups)
            _verify(connection, database, ("run", run["key"]), known)
            yield run["key"], records
        for group in groups.values():
            group.refuse_rest()


def read_models(database: Path) -> list[tuple[str, str, str]]:
    """Returns each model, target and task's key of a database that says which models contain which tasks.

    Raises:
        StoreError: the file is missing, damaged or not a database of trials.
    """
    columns = ("model", "target", "task_key")
    with opened(database) as connection:
        if "model_task" not in _kinds(connection):
            return []
        if len(_plain_columns(connection, database, "model_task", columns, "task_key")) < len(columns):
            raise StoreError(f"{database}: is not a database of trials: its table model_task lacks a column")
        _check(connection, database, "model_task")
        rows = connection.execute(f"select {', '.join(columns)} from model_task").fetchall()
    return [(str(model), str(target), str(key)) for model, target, key in rows]


@contextmanager
def opened(database: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database for reading, whatever it may hold and be called.

    Raises:
        StoreError: the file is missing or not a database, another program is writing to it, or what is read within
            the block is damaged.
    """
    try:
        before = _stat(database)
        uri = f"{database.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            _restrain(connection, before.st_size)
            yield connection
        if _identity(os.stat(database)) != _identity(before):
            raise StoreError(f"{database}: was changed while it was read; try again when nobody writes to it")
    except (sqlite3.Error, ValueError, OverflowError, RecursionError, MemoryError) as error:
        # Python's module raises errors of its own, such as for a name that is not in UTF-8.
        raise StoreError(f"{database}: {_problem(error)}") from error
    except OSError as error:
        raise StoreError(f"{database}: cannot be read: {error.strerror}") from error


def _stat(database: Path) -> os.stat_result:
    if not database.exists():
        raise StoreError(f"{database}: there is no such database or folder of shards")
    found = os.stat(database)
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{database}: is neither a file nor a folder")
    with database.open("rb") as file:
        if file.read(len(_HEADER)) != _HEADER:
            raise StoreError(f"{database}: is not a database of trials: it does not begin as one of SQLite")
    for suffix in ("-journal", "-wal"):
        journal = database.with_name(database.name + suffix)
        if journal.exists() and journal.stat().st_size:
            raise StoreError(
                f"{database}: {journal.name} is beside it, so another program is writing to it or was killed; "
                "run `anole merge` where it comes from, and copy it then"
            )
    return found


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _restrain(connection: sqlite3.Connection, size_bytes: int) -> None:
    """Turns off all that a file can make SQLite do, and ends what takes too long."""
    left = (_STEPS + _STEPS_PER_BYTE * size_bytes) // _STEPS_AT_ONCE

    def spent() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.row_factory = sqlite3.Row
    connection.set_progress_handler(spent, _STEPS_AT_ONCE)
    for limit, value in _LIMITS.items():
        connection.setlimit(limit, value)
    for pragma in _PRAGMAS:
        connection.execute(f"pragma {pragma}")


def _problem(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        return "reading it takes far longer than a file of its size may; it is damaged or was made to harm"
    return f"is damaged, or is not a database of trials: {' '.join(str(error).split())}"


def _tables(connection: sqlite3.Connection, database: Path) -> dict[str, list[str]]:
    """Returns the columns that are read of each table, by the table's name."""
    known = known_migrations()
    if "_sqlite_migrations" in _kinds(connection):
        _refuse_unless_table(connection, database, "_sqlite_migrations")
        _check(connection, database, "_sqlite_migrations")
        applied = connection.execute("select name from _sqlite_migrations where migration_set = 'anole'").fetchall()
        unknown = [str(name) for (name,) in applied if name not in known]
        if unknown:
            raise StoreError(
                f"{database}: was written by a newer Anole ({shown(unknown[0])} is not known here); update Anole"
            )
    present = _kinds(connection)
    missing = sorted(_NEEDED - present.keys())
    if missing:
        raise StoreError(f"{database}: is not a database of trials: it has no table {missing[0]}")
    tables = {}
    for table in _KEYS:
        if table in present:
            tables[table] = _plain_columns(connection, database, table, _columns()[table], _KEYS[table])
    return tables


def _plain_columns(
    connection: sqlite3.Connection, database: Path, table: str, wanted: Iterable[str], needed: str
) -> list[str]:
    """Returns those of the wanted columns that a table has; each must hold values and no expression."""
    _refuse_unless_table(connection, database, table)
    own = {row["name"]: row["hidden"] for row in connection.execute(f"pragma table_xinfo({table})")}
    columns = [column for column in wanted if column in own]
    hidden = [column for column in columns if own[column]]
    if hidden or needed not in own:
        raise StoreError(f"{database}: table {table}: its column {(hidden or [needed])[0]} is no column")
    return columns


def _checksums(connection: sqlite3.Connection, database: Path) -> dict[Entity, str] | None:
    """Returns the checksums of runs and tasks; None in a database of an older version, which has none."""
    if "checksum" not in _kinds(connection):
        return None
    _plain_columns(connection, database, "checksum", ("kind", "key", "sha256"), "sha256")
    _check(connection, database, "checksum")
    return stored(connection)


def _verify(connection: sqlite3.Connection, database: Path, entity: Entity, known: dict[Entity, str] | None) -> None:
    """Refuses a run or a task whose rows are not as the last merge wrote them."""
    if known is None:
        return
    try:
        sha256 = checksum(connection, entity)
    except TypeError:
        # A value is of a type that no merge writes.
        sha256 = None
    if sha256 is None or sha256 != known.get(entity):
        kind, key = entity
        raise StoreError(
            f"{database}: {kind} {shown(key)}: its checksum is wrong: the database was changed, not by a merge, or is "
            "damaged; run `anole merge` where it comes from, and copy it again"
        )


@cache
def _columns() -> dict[str, list[str]]:
    """Returns the columns that each table has in this version."""
    db = Database(memory=True)
    migrations.apply(db)
    return {table: [column.name for column in db.table(table).columns] for table in _KEYS}


def _kinds(connection: sqlite3.Connection) -> dict[str, str]:
    """Returns whether each object is a table, a view or a virtual table, by its name."""
    rows = connection.execute("pragma table_list").fetchall()
    return {row["name"]: row["type"] for row in rows if row["schema"] == "main"}


def _refuse_unless_table(connection: sqlite3.Connection, database: Path, name: str) -> None:
    kind = _kinds(connection)[name]
    if kind != "table":
        raise StoreError(f"{database}: is not a database of trials: {name} is a {kind} and not a table")


def _check(connection: sqlite3.Connection, database: Path, table: str) -> None:
    (found, *_) = connection.execute(f"pragma quick_check({table})").fetchone()
    if found != "ok":
        raise StoreError(f"{database}: is damaged: table {table}: {_one_line(found)}")


def _one_line(text: object) -> str:
    return shown(" ".join(str(text).split()))


class _Grouped:
    """The rows of a table in the order of the runs that they belong to, read once from first to last."""

    def __init__(self, connection: sqlite3.Connection, database: Path, table: str, columns: list[str]) -> None:
        self.place = f"{database}: table {table}"
        key = _KEYS[table]
        second = next((column for column in ("number", "source_run_key") if column in columns), key)
        cursor = connection.execute(f"select {', '.join(columns)} from {table} order by {key}, {second}")
        self._groups = groupby((self._checked(dict(row), key) for row in cursor), key=itemgetter(key))
        self._next: tuple[str, Iterable[Row]] | None = None

    def all(self) -> Iterator[Row]:
        """Yields the only row of each key."""
        before = None
        for key, rows in self._groups:
            for row in rows:
                if key == before:
                    raise StoreError(f"{self.place}: two rows have the key {shown(key)}")
                before = key
                yield row

    def of(self, key: str) -> list[Row]:
        """Returns the rows of a run; runs must be asked for in order."""
        if self._next is None:
            self._next = next(self._groups, None)
        if self._next is None or self._next[0] != key:
            return []
        rows = list(self._next[1])
        self._next = None
        return rows

    def refuse_rest(self) -> None:
        """Refuses rows of runs that do not exist."""
        found = self._next or next(self._groups, None)
        if found is not None:
            raise StoreError(f"{self.place}: holds rows of {shown(found[0])}, which is not in the table it belongs to")

    def _checked(self, row: Row, key: str) -> Row:
        if not isinstance(row[key], str):
            raise StoreError(f"{self.place}: {key} is {shown(row[key])}, not text")
        return row


def _records(
    database: Path, run: Row, tasks: dict[str, Row], spaces: dict[str, Row], groups: dict[str, _Grouped]
) -> list[object]:
    """Returns a run's head, space, warm start, iterations, trials and confirmations."""
    key = run["key"]
    place = f"{database}: run {shown(key)}"
    if run["task_key"] not in tasks:
        raise StoreError(f"{place}: its task {shown(run['task_key'])} is not in the table task")
    task = _plain(tasks[run["task_key"]], frozenset({"workload", "target"}), f"{place}: table task")
    head = {"schema": SCHEMA, "task": task, **_plain(run, json_fields(Run), f"{place}: table run")}
    records: list[object] = [_record(Head, head, f"{place}: table run")]
    if run["task_key"] in spaces:
        records.append(_of_row(SpaceFacts, spaces[run["task_key"]], f"{place}: table space"))
    sources = groups["warm_start"].of(key) if "warm_start" in groups else []
    if sources:
        records.append(WarmStart(tuple(_source(row, f"{place}: table warm_start") for row in sources)))
    for table, cls in (("iteration", Iteration), ("trial", Trial), ("confirmation", Confirmation)):
        for number, row in enumerate(groups[table].of(key)):
            row_place = f"{place}: table {table}, row {number}"
            if table != "iteration" and row.get("number") != number:
                raise StoreError(f"{row_place}: its number is {shown(row.get('number'))}")
            records.append(_of_row(cls, row, row_place))
    return records


def _source(row: Row, place: str) -> Source:
    renamed = {name.removeprefix("source_"): value for name, value in row.items() if name != "run_key"}
    return _record(Source, renamed, place)


def _of_row(cls: type[T], row: Row, place: str) -> T:
    return _record(cls, _plain(row, json_fields(cls), place), place)


def _record(cls: type[T], plain: Row, place: str) -> T:
    try:
        return from_plain(cls, plain)
    except Misfit as error:
        raise StoreError(f"{place}: {error}") from error


def _plain(row: Row, json_columns: frozenset[str], place: str) -> Row:
    """Returns a row with its JSON parsed; what neither JSON nor a file in UTF-8 can hold is refused."""
    plain = dict(row)
    for name in json_columns & row.keys():
        text = row[name]
        if text is None:
            continue
        try:
            plain[name] = parse_json(cast(str, text).encode())
            canonical_json(plain[name]).encode()
        except (ValueError, RecursionError, AttributeError) as error:
            raise StoreError(f"{place}: {name} is {shown(text)}, which is not JSON") from error
    return plain
