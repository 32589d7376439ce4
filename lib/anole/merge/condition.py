"""Finds out whether the file of a database is sound: its pages, its indexes, and the tables that Anole made."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sqlite_utils import Database

from anole.merge.migrations import migrations

_NAMED = "select name from _sqlite_migrations where migration_set = 'anole'"

_MISNAMED = """
select type, name, tbl_name from sqlite_master where type <> 'trigger'
except select iif(type = 'view', 'view', 'table'), name, name from pragma_table_list where schema = 'main'
except select 'index', i.name, t.name from pragma_table_list t, pragma_index_list(t.name) i where t.schema = 'main'
"""
"""SQLite reads names from definitions, whatever their case, and drops what is listed under exactly that name."""

_TOKEN = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/|[^'"`\[(),/-]+|.""", re.DOTALL)


def damage_of(path: Path) -> str | None:
    """Says what is damaged in a database that nobody writes to, or returns None.

    Only what is wrong with the file is found here. Whether rows have other values than before, checksums tell.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("pragma cell_size_check = on")
            checks = (_wrong_names, _wrong_tables, _wrong_pages, _wrong_references)
            return next(filter(None, (check(connection) for check in checks)), None)
    except (sqlite3.Error, UnicodeError) as error:
        if not is_damage(error):
            raise
        return " ".join(str(error).split())


def is_ours(path: Path) -> bool:
    """Returns whether a database that SQLite can open has tables of Anole, and not others of the same names."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return bool(_tables(_expected(connection)))


def is_damage(error: Exception) -> bool:
    """Returns whether an error tells that a file is damaged, and not that a disk is full or that a file is in use.

    Text that is not in UTF-8 gives an error without a code, and a definition that cannot be read a general one.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _wrong_pages(connection: sqlite3.Connection) -> str | None:
    (found,) = connection.execute("pragma integrity_check(1)").fetchone()
    return None if found == "ok" else " ".join(str(found).split())


def _wrong_names(connection: sqlite3.Connection) -> str | None:
    row = connection.execute(_MISNAMED).fetchone()
    return None if row is None else "the schema lists {} {} of {}, but defines no such thing".format(*row)


def _wrong_tables(connection: sqlite3.Connection) -> str | None:
    """Compares the tables with those that the migrations make; more columns are the user's."""
    expected = _expected(connection)
    if _kind(connection, migrations.migrations_table) not in (None, "table"):
        return f"{migrations.migrations_table} is no table"
    for name in _tables(expected):
        if _kind(connection, name) != "table":
            return f"there is no table {name}"
        wanted, found = _columns(expected, name), _columns(connection, name)
        if wanted - found:
            return f"table {name} has no column {min(wanted - found)[0]} of its type"
        if not _is_extended(_definition(connection, name), _definition(expected, name), len(found - wanted)):
            return f"table {name} has another definition"
    indexes = "select name from sqlite_master where type = 'index' and sql is not null and tbl_name <> ?"
    for (name,) in expected.execute(indexes, [migrations.migrations_table]):
        if _definition(connection, name) not in ([], _definition(expected, name)):
            return f"index {name} has another definition"
    return None


def _wrong_references(connection: sqlite3.Connection) -> str | None:
    for name in _tables(_expected(connection)):
        row = connection.execute(f"pragma foreign_key_check({name})").fetchone()
        if row is not None:
            return f"a row of table {name} refers to a row of {row[2]} that is not there"
    return None


def _expected(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Returns an empty database after the migrations that a database says it has had."""
    db = Database(memory=True)
    if _kind(connection, migrations.migrations_table) == "table":
        connection.text_factory = lambda text: text.decode(errors="replace")
        applied = {name for (name,) in connection.execute(_NAMED)}
        names = [migration.name for migration in migrations.pending(db)]
        missing = next((name for name in names if name not in applied), None)
        if missing != names[0]:
            migrations.apply(db, stop_before=missing)
    return db.conn


def _tables(connection: sqlite3.Connection) -> list[str]:
    own = "select name from sqlite_master where type = 'table' and name <> ?"
    return [name for (name,) in connection.execute(own, [migrations.migrations_table])]


def _kind(connection: sqlite3.Connection, name: str) -> str | None:
    """Returns whether a name is that of a table, a view or another thing; None if there is no such thing."""
    kinds = "select type from pragma_table_list where schema = 'main' and name = ?"
    row = connection.execute(kinds, [name]).fetchone()
    return None if row is None else str(row[0])


def _definition(connection: sqlite3.Connection, name: str) -> list[str]:
    """Returns the parts of the definition of a table or an index: its head, each column and constraint, and its end."""
    sql = "select sql from sqlite_master where type in ('table', 'index') and name = ?"
    return [part for (text,) in connection.execute(sql, [name]) for part in _parts(str(text))]


def _parts(definition: str) -> Iterator[str]:
    """Splits a definition at its outer parentheses and at the commas between them."""
    depth, part = 0, ""
    for token in _TOKEN.findall(definition):
        depth += (token == "(") - (token == ")")
        if (token, depth) in (("(", 1), (",", 1), (")", 0)):
            yield " ".join(part.split())
            part = ""
        else:
            part += token
    yield " ".join(part.split())


def _is_extended(found: list[str], wanted: list[str], n_added: int) -> bool:
    """Returns whether a definition is the wanted one with so many columns added, which are the user's."""
    parts = iter(found)
    return len(found) == len(wanted) + n_added and all(part in parts for part in wanted)


def _columns(connection: sqlite3.Connection, table: str) -> set[tuple[object, ...]]:
    rows = connection.execute(f"pragma table_xinfo({table})")
    return {(name, kind, notnull, key, hidden) for _, name, kind, notnull, _, key, hidden in rows}
