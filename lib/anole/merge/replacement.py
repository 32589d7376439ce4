"""Replace a database file atomically: if anything fails before that, the content of the old file is unchanged."""

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
from anole.merge.untrusted_database import is_machine_fault

_BUSY_TIMEOUT_S = 10.0
"""Time to wait for another program's transaction."""

_CACHE_KIB = 64 << 10
"""Size of SQLite's page cache; large, because inserts touch random pages of the indexes."""


class HeldDatabase:
    """A database file, maybe missing, that other merges cannot write, nor other programs if it is a valid database.

    Attributes:
        path: the file itself, with links resolved.
        sha256: hash of the current file; None if it is missing or empty.
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        # Hash the given descriptor: closing a new one would release SQLite's (POSIX) locks on the file.
        self.sha256 = None if descriptor is None else _sha256(descriptor)

    @contextmanager
    def replacing(self, *, empty: bool = False) -> Iterator[Database]:
        """Yield a copy, or an empty database, that replaces this file if the block ends without an error."""
        copy_path = self.path.with_name(f"{self.path.name}.tmp")
        _remove_with_journal(copy_path)
        try:
            with closing(_temporary_database(self.path, copy_path, empty)) as db:
                yield db
            sha256 = _sha256_of(copy_path)
            replace_durably(copy_path, self.path)
            self.sha256 = sha256
        finally:
            _remove_with_journal(copy_path)

    def keep_aside(self) -> Path:
        """Give the file a second name, under which it remains when the path is replaced; return that name.

        At no time is the path without a file. The journal is moved; otherwise SQLite would apply it to the new file.
        """
        for older in self.path.parent.glob(f"{self.path.name}.damaged-*"):
            if older.samefile(self.path):
                return older
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        second_path = self.path.with_name(f"{self.path.name}.damaged-{now}")
        try:
            os.link(self.path, second_path)
        except OSError:
            # Some file systems have no hard links.
            shutil.copy2(self.path, second_path)
            sync(second_path)
        for suffix in ("-journal", "-wal"):
            journal = self.path.with_name(f"{self.path.name}{suffix}")
            if journal.exists():
                journal.rename(second_path.with_name(f"{second_path.name}{suffix}"))
        sync(self.path.parent)
        return second_path


@contextmanager
def hold_database(path: Path) -> Iterator[HeldDatabase]:
    """Prevent other merges from writing a database within the block, and other programs if it is a valid database.

    Other merges wait. A write by another program waits; if the file is replaced, the write fails, because its open file
    is no longer the database. Readers continue with the old file.

    Raises:
        StoreError: the file is in use; or the folder, or the copy that `replacing` yields, cannot be written.
    """
    path = path.resolve()
    try:
        make_folder(path.parent)
        with ExitStack() as stack:
            stack.enter_context(_lock_folder(path.parent))
            if not path.exists():
                yield HeldDatabase(path, None)
                return
            descriptor = os.open(path, os.O_RDONLY)
            stack.callback(close, descriptor)
            stack.enter_context(_transaction(path))
            is_empty = not os.fstat(descriptor).st_size
            yield HeldDatabase(path, None if is_empty else descriptor)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}; the database is intact") from error
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; the database is intact") from error


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        close(descriptor)


@contextmanager
def _transaction(path: Path) -> Iterator[None]:
    """If a file is a valid database, prevent other programs from writing to it.

    The file must have no journal when it is replaced: SQLite would apply the journal to the new file.
    """
    uri = f"{path.as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)) as connection:
        try:
            connection.execute("pragma journal_mode = delete")
            connection.execute("begin immediate")
        except (sqlite3.Error, UnicodeError) as error:
            if is_machine_fault(error):
                raise
        yield
        if connection.in_transaction:
            connection.execute("rollback")


def _temporary_database(path: Path, copy_path: Path, empty: bool) -> Database:
    db = Database(copy_path)
    if path.exists():
        if not empty:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_S)) as source:
                source.backup(db.conn)
        shutil.copymode(path, copy_path)
    for pragma in ("synchronous = off", "foreign_keys = on", "cell_size_check = on", f"cache_size = -{_CACHE_KIB}"):
        db.execute(f"pragma {pragma}")
    return db


def _remove_with_journal(copy_path: Path) -> None:
    for leftover in (copy_path, copy_path.with_name(f"{copy_path.name}-journal")):
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
