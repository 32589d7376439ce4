"""Rewrites a database file atomically: if anything fails, the old file stays as it was."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlite_utils import Database

from anole.errors import StoreError
from anole.files import sync

_PATIENCE_S = 10.0
"""Seconds to wait for another program's transaction."""


@contextmanager
def replaced(path: Path) -> Iterator[Database]:
    """Yields a writable copy of the database, which replaces it by rename if the block ends without an error.

    No other process can write meanwhile: a second rewrite waits for this one; another program's write waits and
    then fails, because the file it has opened is no longer the database. Readers continue with the old file.

    Raises:
        StoreError: the file is not a database or is in use, or the copy cannot be written.
    """
    path = path.resolve()
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent), _held(path):
            _remove(temporary)
            try:
                with closing(_copy(path, temporary)) as db:
                    yield db
                sync(temporary)
                os.replace(temporary, path)
                sync(path.parent)
            finally:
                _remove(temporary)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}; the database is unchanged") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; the database is unchanged") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Prevents other programs from writing to an existing database.

    No journal may exist beside the file when another file takes its name: SQLite would apply it to that file.
    """
    if not path.exists():
        yield
        return
    uri = f"{path.as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S, isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = delete")
        connection.execute("begin immediate")
        yield
        connection.execute("rollback")


def _copy(path: Path, temporary: Path) -> Database:
    db = Database(temporary)
    if path.exists():
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_PATIENCE_S)) as source:
            source.backup(db.conn)
        shutil.copymode(path, temporary)
    db.execute("pragma synchronous = off")
    db.execute("pragma foreign_keys = on")
    return db


def _remove(temporary: Path) -> None:
    for leftover in (temporary, temporary.with_name(f"{temporary.name}-journal")):
        leftover.unlink(missing_ok=True)
