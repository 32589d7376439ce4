"""Finds out whether the file of a database is sound: its pages, its indexes, and the tables that Anole made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlite_utils import Database

from anole.merge.migrations import migrations

_NAMED = "select name from _sqlite_migrations where migration_set = 'anole'"


def damage_of(path: Path) -> str | None:
    """Says what is damaged in a database that nobody writes to, or returns None.

    Only what is wrong with the file is found here. Whether rows have other values than before, checksums tell.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("pragma cell_size_check = on")
            return _wrong_tables(connection) or _wrong_pages(connection) or _wrong_references(connection)
    except sqlite3.OperationalError:
        # A full disk or a lock is no damage.
        raise
    except sqlite3.DatabaseError as error:
        return str(error)


def _wrong_pages(connection: sqlite3.Connection) -> str | None:
    (found,) = connection.execute("pragma integrity_check(1)").fetchone()
    return None if found == "ok" else " ".join(str(found).split())


def _wrong_tables(connection: sqlite3.Connection) -> str | None:
    """Compares the tables and columns with those that the migrations make; more columns are the user's."""
    for name, expected in _expected(connection).items():
        kinds = connection.execute("select type from pragma_table_list where schema = 'main' and name = ?", [name])
        if kinds.fetchall() != [("table",)]:
            return f"there is no table {name}"
        missing = expected - _columns(connection, name)
        if missing:
            return f"table {name} has no column {min(missing)[0]} of its type"
    return None


def _wrong_references(connection: sqlite3.Connection) -> str | None:
    for name in _expected(connection):
        row = connection.execute(f"pragma foreign_key_check({name})").fetchone()
        if row is not None:
            return f"a row of table {name} refers to a row of {row[2]} that is not there"
    return None


def _expected(connection: sqlite3.Connection) -> dict[str, set[tuple[object, ...]]]:
    """Returns the columns of each table that the migrations made which the file says it has."""
    kinds = "select 1 from pragma_table_list where name = '_sqlite_migrations' and type = 'table'"
    if connection.execute(kinds).fetchone() is None:
        return {}
    applied = {name for (name,) in connection.execute(_NAMED)}
    db = Database(memory=True)
    pending = [migration.name for migration in migrations.pending(db)]
    first_missing = next((name for name in pending if name not in applied), None)
    migrations.apply(db, stop_before=first_missing)
    return {name: _columns(db.conn, name) for name in db.table_names() if name != "_sqlite_migrations"}


def _columns(connection: sqlite3.Connection, table: str) -> set[tuple[object, ...]]:
    rows = connection.execute(f"pragma table_xinfo({table})")
    return {(name, kind, notnull, key, hidden) for _, name, kind, notnull, _, key, hidden in rows}
