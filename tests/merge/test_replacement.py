"""Replacing a database file atomically, with concurrent readers and writers."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from anole.errors import StoreError
from anole.merge import replacement
from anole.merge.replacement import hold_database
from anole.merge.untrusted_database import open_database


@contextmanager
def replace_database(path: Path) -> Iterator[sqlite3.Connection]:
    with hold_database(path) as file, file.replacing() as db:
        yield db


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "db" / "x.sqlite"
    with replace_database(path) as db:
        db.execute("create table note (text)")
    return path


def notes(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [text for (text,) in connection.execute("select text from note order by text")]


def test_replacing_keeps_the_former_rows(database: Path) -> None:
    database.chmod(0o640)
    for text in ("a", "b"):
        with replace_database(database) as db:
            db.execute("insert into note values (?)", [text])
    assert notes(database) == ["a", "b"]
    assert database.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in database.parent.iterdir()] == ["x.sqlite"]


def test_a_failure_leaves_the_database_unchanged(database: Path) -> None:
    before = database.read_bytes()
    with pytest.raises(KeyError), replace_database(database) as db:
        db.execute("insert into note values ('lost')")
        raise KeyError
    with pytest.raises(StoreError, match="no such table: absent; the database is intact"):
        with replace_database(database) as db:
            db.execute("insert into note values ('lost')")
            db.execute("insert into absent values (1)")
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == ["x.sqlite"]


def test_a_full_disk_leaves_the_database_unchanged(database: Path) -> None:
    before = database.read_bytes()
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, unlimited[1]))
    try:
        with pytest.raises(StoreError, match="the database is intact"), replace_database(database) as db:
            db.execute("insert into note values (?)", ["x" * 1_000_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == ["x.sqlite"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match=r"db/x\.sqlite: "), replace_database(tmp_path / "db" / "x.sqlite"):
        pass


def test_temporary_files_of_a_crash_are_removed(database: Path) -> None:
    for name in ("x.sqlite.tmp", "x.sqlite.tmp-journal"):
        database.with_name(name).write_text("half written")
    with replace_database(database) as db:
        db.execute("insert into note values ('a')")
    assert notes(database) == ["a"]
    assert [path.name for path in database.parent.iterdir()] == ["x.sqlite"]


def test_a_link_stays_a_link(database: Path) -> None:
    link = database.with_name("link.sqlite")
    link.symlink_to(database)
    with replace_database(link) as db:
        db.execute("insert into note values ('a')")
    assert link.is_symlink()
    assert notes(database) == ["a"]


def test_concurrent_writers_take_turns(database: Path) -> None:
    def add(text: str) -> None:
        with replace_database(database) as db:
            db.execute("insert into note values (?)", [text])

    threads = [threading.Thread(target=add, args=[text]) for text in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert notes(database) == list("abcdef")


def test_a_transaction_of_another_program_is_not_overwritten(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacement, "_BUSY_TIMEOUT_S", 0.05)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("begin immediate")
    other.execute("insert into note values ('other')")
    with pytest.raises(StoreError, match="database is locked"), replace_database(database):
        pass
    other.execute("commit")
    other.close()
    assert notes(database) == ["other"]


def test_a_late_write_of_another_program_raises_an_error(database: Path) -> None:
    other = sqlite3.connect(database, isolation_level=None, timeout=0.05)
    assert other.execute("select count(*) from note").fetchone() == (0,)
    with replace_database(database) as db:
        db.execute("insert into note values ('a')")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("insert into note values ('other')")
        assert other.execute("select count(*) from note").fetchone() == (0,)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        other.execute("insert into note values ('other')")
    other.close()
    assert notes(database) == ["a"]


def test_reading_the_file_does_not_release_its_locks(database: Path) -> None:
    """POSIX releases a process's locks of a file when any descriptor of the file is closed."""
    write = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.05).execute('begin immediate')"
    with hold_database(database), open_database(database) as old:
        assert old.rows("select * from note") == []
        for _ in range(2):
            done = subprocess.run([sys.executable, "-c", write, database], capture_output=True, text=True)
            assert "database is locked" in done.stderr
            with open_database(database):
                pass


def test_a_write_ahead_log_is_merged(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacement, "_BUSY_TIMEOUT_S", 0.05)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("pragma journal_mode = wal")
    other.execute("insert into note values ('logged')")
    with pytest.raises(StoreError, match="locked"), replace_database(database):
        pass
    other.close()
    with replace_database(database) as db:
        db.execute("insert into note values ('a')")
    assert notes(database) == ["a", "logged"]
    assert [path.name for path in database.parent.iterdir()] == ["x.sqlite"]
