"""The tables and views of the database, as defined by `schema.sql` and `views.sql`."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from hashlib import sha256
from importlib import resources

FIRST_TABLES = ("task", "run", "trial", "confirmation", "iteration")
"""The tables that every version creates."""

FORMER_TABLES = ("checksum", "_sqlite_migrations")
"""The tables that only versions before 0.7 created."""


def create_tables(connection: sqlite3.Connection) -> None:
    """Create all tables and indexes in an empty database."""
    connection.executescript(f"begin; {_sql('schema')} commit;")


def create_views(connection: sqlite3.Connection) -> None:
    """Create all views; existing views with the same names are replaced, because views hold no data."""
    views = _sql("views")
    drops = "".join(f"drop view if exists {name}; " for name in re.findall(r"^create view (\w+)", views, re.MULTILINE))
    connection.executescript(f"begin; {drops} {views} commit;")


@cache
def version() -> int:
    """Return the version of the tables; databases from before 0.7 have version 0."""
    with closing(_empty_database()) as connection:
        return int(connection.execute("pragma user_version").fetchone()[0])


@cache
def columns() -> Mapping[str, tuple[str, ...]]:
    """Return the columns of each table, key columns first."""
    with closing(_empty_database()) as connection:
        names = connection.execute("select name from sqlite_master where type = 'table'").fetchall()
        return {name: tuple(row[1] for row in connection.execute(f"pragma table_info({name})")) for (name,) in names}


def schema_sha256() -> str:
    """Return the hash of the definitions of the tables."""
    return sha256(_sql("schema").encode()).hexdigest()


def views_sha256() -> str:
    """Return the hash of the definitions of the views."""
    return sha256(_sql("views").encode()).hexdigest()


def _empty_database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    create_tables(connection)
    return connection


@cache
def _sql(name: str) -> str:
    return resources.files("anole.merge").joinpath(f"{name}.sql").read_text(encoding="utf-8")
