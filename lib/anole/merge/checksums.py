"""The checksums of what the database holds, so that rows without a file here are known to be what a merge wrote."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from functools import cache

from sqlite_utils import Database

from anole.merge.merged import Entity
from anole.merge.migrations import migrations

KINDS = {
    "task": {"task": "key = ?", "space": "task_key = ?"},
    "run": {
        "run": "key = ?",
        "warm_start": "run_key = ? order by source_run_key",
        "iteration": "run_key = ? order by number",
        "trial": "run_key = ? order by number",
        "confirmation": "run_key = ? order by number",
    },
    "model": {"model": "name = ?"},
    "manifest": {"model_task": "model || '/' || target = ? order by position"},
    "build": {
        "build": "name = ?",
        "build_task": "build = ? order by position",
        "refinement": "build = ? order by task_key, number",
    },
    "evaluation": {
        "evaluation": "build = ? order by reference",
        "load_latency": "build = ? order by neighbours, engine",
        "kernel_profile": "build = ?",
        "kernel_latency": "build = ? order by number",
    },
}
"""The rows of each kind of entity, by table; a kind refers only to kinds before it."""

_ALL = {
    "task": "select key from task",
    "run": "select key from run",
    "model": "select name from model",
    "manifest": "select distinct model || '/' || target from model_task",
    "build": "select name from build",
    "evaluation": "select distinct build from evaluation",
}

_encode = json.JSONEncoder(separators=(",", ":")).encode


def checksum(connection: sqlite3.Connection, entity: Entity) -> str | None:
    """Returns the SHA-256 of all rows of an entity; None if it has none.

    Null columns at the end of a row do not count, so that a column which a later migration adds changes nothing.
    """
    kind, key = entity
    digest, found = hashlib.sha256(), False
    for table, where in KINDS[kind].items():
        for row in connection.execute(f"select {', '.join(columns_of(table))} from {table} where {where}", [key]):
            found = True
            values = list(row)
            while values[-1] is None:
                values.pop()
            digest.update(f"{table}{_encode(values)}\n".encode())
    return digest.hexdigest() if found else None


@cache
def columns_of(table: str) -> tuple[str, ...]:
    """Returns the columns that Anole gives a table; a user may have added others."""
    db = Database(memory=True)
    migrations.apply(db)
    return tuple(column.name for column in db.table(table).columns)


def stored(connection: sqlite3.Connection) -> dict[Entity, str]:
    """Returns the checksums that the last merge stored."""
    return {(kind, key): sha256 for kind, key, sha256 in connection.execute("select kind, key, sha256 from checksum")}


def entities(connection: sqlite3.Connection) -> set[Entity]:
    """Returns everything that the database holds."""
    return {(kind, key) for kind, sql in _ALL.items() for (key,) in connection.execute(sql)}


def changed_since(connection: sqlite3.Connection, written: set[Entity]) -> list[Entity]:
    """Returns what is not as the last merge stored it, apart from what this merge has written."""
    known = stored(connection)
    others = (known.keys() | entities(connection)) - written
    return sorted(entity for entity in others if checksum(connection, entity) != known.get(entity))


def store(connection: sqlite3.Connection, written: Iterable[Entity]) -> None:
    """Stores the checksums of what this merge has written or removed."""
    for entity in written:
        sha256 = checksum(connection, entity)
        if sha256 is None:
            connection.execute("delete from checksum where kind = ? and key = ?", entity)
        else:
            connection.execute("insert or replace into checksum values (?, ?, ?)", [*entity, sha256])
