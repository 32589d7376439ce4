"""Rewrites a database file atomically: if anything fails, the old file stays as it was."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlite_utils import Database

from anole.errors import StoreError
from anole.files import close, make_folder, replace_durably, sync
from anole.merge.untrusted_database import is_fault

_PATIENCE_S = 10.0
"""Seconds to wait for another program's transaction."""

_CACHE_KIB = 64 << 10
"""The pages that SQLite keeps in memory: rows come in the order of their tasks, and go anywhere into indexes."""


class HeldDatabase:
    """A database file, present or not, that no other process writes.

    Attributes:
        path: the file itself, not a link to it.
        sha256: the hash of the file, before or after it was replaced; None if there is none, or an empty one.
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        # Another descriptor of the file, once closed, would end SQLite's locks; so this one is used.
        self.sha256 = None if descriptor is None else _sha256(descriptor)

    @contextmanager
    def replaced(self, *, anew: bool = False) -> Iterator[Database]:
        """Yield a writable copy, or an empty database, which replaces this one if the block ends without an error."""
        temporary = self.path.with_name(f"{self.path.name}.tmp")
        _remove(temporary)
        try:
            with closing(_opened(self.path, temporary, anew)) as db:
                yield db
            sha256 = _sha256_of(temporary)
            replace_durably(temporary, self.path)
            self.sha256 = sha256
        finally:
            _remove(temporary)

    def kept_aside(self) -> Path:
        """Give the file a second name, under which it stays when it is replaced, and returns that name.

        At no moment is there no file under the first name. A journal beside it goes with it, so that SQLite does not
        apply it to the file that takes its place.
        """
        for older in self.path.parent.glob(f"{self.path.name}.damaged-*"):
            if older.samefile(self.path):
                return older
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        aside = self.path.with_name(f"{self.path.name}.damaged-{now}")
        try:
            os.link(self.path, aside)
        except OSError:
            # Some file systems have no second names.
            shutil.copy2(self.path, aside)
            sync(aside)
        for suffix in ("-journal", "-wal"):
            journal = self.path.with_name(f"{self.path.name}{suffix}")
            if journal.exists():
                journal.rename(aside.with_name(f"{aside.name}{suffix}"))
        sync(self.path.parent)
        return aside


@contextmanager
def held(path: Path) -> Iterator[HeldDatabase]:
    """Prevent other processes from writing to a database, and from creating it, within the block.

    A second process that holds it waits for this one. Another program's write waits and then fails, because the file it
    has opened is no longer the database. Readers continue with the old file.

    Raises:
        StoreError: the file is in use, or the folder or the copy cannot be written.
    """
    path = path.resolve()
    try:
        make_folder(path.parent)
        with ExitStack() as stack:
            stack.enter_context(_locked(path.parent))
            if not path.exists():
                yield HeldDatabase(path, None)
                return
            descriptor = os.open(path, os.O_RDONLY)
            stack.callback(close, descriptor)
            stack.enter_context(_transaction(path))
            is_empty = not os.fstat(descriptor).st_size
            yield HeldDatabase(path, None if is_empty else descriptor)
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
        close(descriptor)


@contextmanager
def _transaction(path: Path) -> Iterator[None]:
    """Prevent other programs from writing to an existing file, unless SQLite does not take it for a database.

    No journal may exist beside the file when another file takes its name: SQLite would apply it to that file.
    """
    uri = f"{path.as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE_S, isolation_level=None)) as connection:
        try:
            connection.execute("pragma journal_mode = delete")
            connection.execute("begin immediate")
        except (sqlite3.Error, UnicodeError) as error:
            if is_fault(error):
                raise
        yield
        if connection.in_transaction:
            connection.execute("rollback")


def _opened(path: Path, temporary: Path, anew: bool) -> Database:
    db = Database(temporary)
    if path.exists():
        if not anew:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_PATIENCE_S)) as source:
                source.backup(db.conn)
        shutil.copymode(path, temporary)
    for pragma in ("synchronous = off", "foreign_keys = on", "cell_size_check = on", f"cache_size = -{_CACHE_KIB}"):
        db.execute(f"pragma {pragma}")
    return db


def _remove(temporary: Path) -> None:
    for leftover in (temporary, temporary.with_name(f"{temporary.name}-journal")):
        leftover.unlink(missing_ok=True)


def _sha256_of(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return _sha256(descriptor)
    finally:
        close(descriptor)


def _sha256(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
