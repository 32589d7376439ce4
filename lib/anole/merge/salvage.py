"""Carries over into a new database what only a damaged one holds, as far as it is proven to be whole."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlite_utils import Database

from anole.errors import StoreError
from anole.merge.checksums import KINDS, checksum, columns_of, store, stored
from anole.merge.foreign import opened
from anole.merge.merged import Entity

_NOTHING = "runs without a shard here are missing: the file has no checksums that can be read"

_CREATES = re.compile(r"\s*create\s+(table|view|(unique\s+)?index)\b", re.IGNORECASE)


def salvage_runs(db: Database, damaged: Path) -> list[str]:
    """Copies the tasks and runs that a new database lacks, each only if its checksum is right.

    Args:
        db: the new database, with everything that shards tell.
        damaged: the damaged file.

    Returns:
        What may be missing now, a sentence for each.
    """
    return _salvaged(db, damaged, ("task", "run"), own=False)


def salvage_others(db: Database, damaged: Path) -> list[str]:
    """Copies the models, builds and evaluations that a new database lacks, and the user's tables, indexes and views.

    Args:
        db: the new database, with everything that shards and documents tell and the runs of the damaged file.
        damaged: the damaged file.

    Returns:
        What may be missing now, a sentence for each.
    """
    return _salvaged(db, damaged, [kind for kind in KINDS if kind not in ("task", "run")], own=True)


def _salvaged(db: Database, damaged: Path, kinds: Iterable[str], *, own: bool) -> list[str]:
    # A row that refers to a missing one is refused at once, and not when all is committed.
    db.execute("pragma defer_foreign_keys = off")
    try:
        with opened(damaged) as old:
            known = _checksums(old)
            if known is None:
                return [_NOTHING, *(_salvage_own(db, old) if own else ())]
            lost = (entity for kind in kinds for entity in _salvage_kind(db, old, kind, known))
            return [*_counted(lost), *(_salvage_own(db, old) if own else ())]
    except StoreError as error:
        problem = str(error).removeprefix(f"{damaged}: ")
        return [f"nothing else could be read from it ({problem}): runs without a shard here, your own tables"]


def _checksums(old: sqlite3.Connection) -> dict[Entity, str] | None:
    try:
        return stored(old) if _is_table(old, "checksum") else None
    except sqlite3.Error:
        return None


def _salvage_kind(db: Database, old: sqlite3.Connection, kind: str, known: dict[Entity, str]) -> Iterator[Entity]:
    """Copies every entity of a kind that the new database lacks and whose checksum is right; yields the others."""
    for entity in sorted(each for each in known if each[0] == kind and checksum(db.conn, each) is None):
        try:
            with _tried(db):
                if checksum(old, entity) != known[entity]:
                    raise sqlite3.IntegrityError("other content")
                _copy(db, old, entity)
                store(db.conn, [entity])
        except (sqlite3.Error, UnicodeError):
            yield entity


def _copy(db: Database, old: sqlite3.Connection, entity: Entity) -> None:
    kind, key = entity
    for table, where in KINDS[kind].items():
        columns = columns_of(table)
        rows = old.execute(f"select {', '.join(columns)} from {table} where {where}", [key])
        marks = ", ".join("?" for _ in columns)
        db.conn.executemany(f"insert into {table} ({', '.join(columns)}) values ({marks})", map(tuple, rows))


def _counted(lost: Iterable[Entity]) -> Iterator[str]:
    for kind, n_lost in Counter(kind for kind, _ in lost).items():
        yield f"{n_lost} of its {kind}s without a file here are not as they were merged, and are missing"


def _salvage_own(db: Database, old: sqlite3.Connection) -> Iterator[str]:
    """Copies what the user made; triggers are left out, because a damaged one would run in every merge."""
    present = {name for (name,) in db.conn.execute("select name from sqlite_master")}
    objects = "select type, name, sql from sqlite_master where sql is not null order by rowid"
    try:
        own = [tuple(row) for row in old.execute(objects) if row["name"] not in present]
    except sqlite3.Error as error:
        yield f"your own tables could not be read ({error})"
        return
    for wanted in ("table", "index", "view", "trigger"):
        for kind, name, sql in own:
            if kind != wanted or str(name).startswith("sqlite_"):
                continue
            try:
                with _tried(db):
                    _copy_object(db, old, str(kind), str(name), str(sql))
            except (sqlite3.Error, UnicodeError) as error:
                yield f"your {kind} {name} could not be carried over ({error})"


def _copy_object(db: Database, old: sqlite3.Connection, kind: str, name: str, sql: str) -> None:
    if not _CREATES.match(sql):
        raise sqlite3.DataError("it is not a plain table, index or view")
    quoted = '"' + name.replace('"', '""') + '"'
    if kind == "table":
        (found, *_) = old.execute(f"pragma quick_check({quoted})").fetchone()
        if found != "ok":
            raise sqlite3.DataError(" ".join(str(found).split()))
    db.execute(sql)
    if kind == "table":
        columns = [row["name"] for row in old.execute(f"pragma table_xinfo({quoted})") if not row["hidden"]]
        names = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
        marks = ", ".join("?" for _ in columns)
        rows = old.execute(f"select {names} from {quoted}")
        db.conn.executemany(f"insert into {quoted} ({names}) values ({marks})", map(tuple, rows))


def _is_table(connection: sqlite3.Connection, name: str) -> bool:
    kinds = connection.execute("select type from pragma_table_list where schema = 'main' and name = ?", [name])
    return [kind for (kind,) in kinds] == ["table"]


@contextmanager
def _tried(db: Database) -> Iterator[None]:
    """Undoes what the block did to the database when it fails."""
    db.execute("savepoint tried")
    try:
        yield
    except BaseException:
        db.execute("rollback to tried")
        raise
    finally:
        db.execute("release tried")
