"""Importing malicious and damaged databases: each is rejected quickly with one message, and leaves no files."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anole.errors import StoreError
from anole.merge.exchange.importing import ImportCounts, import_records

from ...record_project import execute

MAX_S = 10.0


@pytest.fixture(scope="module")
def sound(new_project: Callable) -> Path:
    """A database of two runs."""
    project = new_project()
    project.tune(project.run_of(project.CONV), project.CONV, [3e-3, None, 2e-3], [2.1e-3])
    project.tune(project.run_of(project.DENSE), project.DENSE, [3e-3])
    project.merge()
    return project.database


@pytest.fixture
def database(sound: Path, tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return Path(shutil.copy(sound, tmp_path / "there" / "x.sqlite"))


def rewrite_schema(database: Path, old: str, new: str) -> None:
    """Change the definition of tables without changing their rows."""
    execute(
        database,
        f"pragma writable_schema = on; "
        f"update sqlite_master set sql = replace(sql, '{old}', '{new}') where type = 'table';",
    )


def import_(database: Path) -> ImportCounts:
    """Import a database; assert that this is quick and creates no files except shards."""
    there = database.parent
    before, began_s = {path: path.lstat().st_mtime_ns for path in there.rglob("*")}, time.monotonic()
    try:
        return import_records(database, there.parent / "here")
    finally:
        assert time.monotonic() - began_s < MAX_S
        assert {path: path.lstat().st_mtime_ns for path in there.rglob("*")} == before
        assert {path.suffix for path in (there.parent / "here").rglob("*.*")} <= {".jsonl"}


@pytest.mark.parametrize("name", ["a#b.sqlite", "50%20.sqlite", "x?mode=rwc&y.sqlite", "ü\u2028 \n'\".sqlite", "a?b"])
def test_a_database_may_have_any_name(database: Path, name: str) -> None:
    database = database.rename(database.with_name(name))
    assert import_(database) == ImportCounts(new=2, trials=4)


def test_other_tables_and_views_are_ignored(database: Path) -> None:
    execute(
        database,
        """
        create table note (text, upper text generated always as (upper(text)));
        insert into note (text) values ('mine');
        create view endless as with recursive n (i) as (select 1 union all select i + 1 from n) select i from n;
        create virtual table found using fts5 (text);
        create trigger t after insert on run begin delete from run; end;
        alter table trial add column remark text;
        create index own on trial (cv);
        """,
    )
    assert import_(database) == ImportCounts(new=2, trials=4)


def test_a_database_that_had_a_write_ahead_log_is_read(database: Path) -> None:
    execute(database, "pragma journal_mode = wal;")
    assert import_(database) == ImportCounts(new=2, trials=4)


ENDLESS = "with recursive n (i) as (select 1 union all select i + 1 from n)"

SCHEMAS = {
    "an endless view as run": (
        f"alter table run rename to old; create view run as {ENDLESS} select i as key, * from n, old;",
        "run is a view and not a table",
    ),
    "an endless view as trial": (
        f"alter table trial rename to old; create view trial as {ENDLESS} select old.* from n, old;",
        "trial is a view and not a table",
    ),
    "a virtual table as trial": (
        "drop table trial; create virtual table trial using fts5 (run_key, number);",
        "trial is a virtual and not a table",
    ),
    "a generated column": (
        "drop table trial; create table trial (run_key, number, config generated always as (zeroblob(1000000000)));",
        "table trial: its column config is a generated column",
    ),
    "no key": ("drop table trial; create table trial (number);", "table trial: has no column run_key"),
    "no table of trials": ("drop table trial;", "it has no table trial"),
    "no table at all": (
        "pragma writable_schema = on; delete from sqlite_master;",
        "is not a database of trials: it has no table task",
    ),
    "a newer version": ("pragma user_version = 99;", r"was written by a newer Anole \(its tables have version 99; "),
    "a broken definition": (
        "pragma writable_schema = on; update sqlite_master set sql = 'create table run (' where name = 'run';",
        "malformed database schema",
    ),
    "two rows of one task": (
        "pragma legacy_alter_table = on; create table copy as select * from task; drop table task; "
        "alter table copy rename to task; insert into task select * from task;",
        "table task: 2 rows have the key",
    ),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_without_plain_tables_is_rejected(database: Path, kind: str) -> None:
    script, message = SCHEMAS[kind]
    execute(database, script)
    with pytest.raises(StoreError, match=message):
        import_(database)


def test_check_constraints_of_a_table_are_not_evaluated(database: Path) -> None:
    """A check constraint could take forever."""
    execute(database, "drop table iteration; create table iteration (run_key text, number integer, log text);")
    endless = "length(replace(hex(zeroblob(2000000)), ''0'', ''1234567890''))"
    rewrite_schema(database, "log text)", f"log text check ({endless} > 0))")
    assert import_(database) == ImportCounts(new=2, trials=4)


CELLS = {
    "a number instead of a key": ("update run set key = 17 where rowid = 1", "which is not in the table run"),
    "no text": ("update trial set status = null where number = 0", "table trial, row 0: status is None, not one of ok"),
    "an unknown status": ("update trial set status = 'fine' where number = 0", "status is 'fine', not one of ok"),
    "a config of nothing": ("update trial set config = null where number = 0", "config is None, not an object"),
    "a config that is not JSON": ("update trial set config = '{' where number = 0", "config is '{', which is not JSON"),
    "a config of bytes": ("update trial set config = x'7b7d' where number = 0", r"config is b'\{\}', which"),
    "half a surrogate": (
        """update trial set config = '{"a": "\\ud800"}' where number = 0""",
        "row 0: config is .*, which is not JSON",
    ),
    "a large number": (
        "update trial set config = '{\"a\": 1e999}' where number = 0",
        "config is .*, which is not JSON",
    ),
    "deep nesting": (
        "update trial set config = '{\"a\": ' || replace(hex(zeroblob(50000)), '00', '[') || '}' where number = 0",
        "config is .*, which is not JSON",
    ),
    "an infinity": ("update trial set latency_s = 9e999 where number = 0", "Out of range float values"),
    "a latency below zero": ("update trial set latency_s = -1 where number = 0", "latency_s is -1"),
    "another speed": ("update trial set gflops = 1e9 where number = 0", "gflops is 1000000000.0"),
    "a gap": ("update trial set number = 5 where number = 2", "table trial, row 2: its number is 5"),
    "a config twice": ("update trial set config = (select config from trial limit 1)", "is measured again"),
    "a trial of no run": ("update trial set run_key = 'f' where number = 2", "table trial: holds rows of 'f'"),
    "a run of no task": ("update run set task_key = key", "its task '[0-9a-f]*'? ?.* is not in the table task"),
    "settings of another run": ("update run set seed = 5", "its settings have the key"),
    "a workload of another task": ("update task set workload = replace(workload, '64', '32')", "has the key"),
    "zero strides": ("update task set workload = replace(workload, '[1,1]', '[0,0]')", "the task cannot be read"),
    "a batch of 10^30": (
        "update task set workload = replace(workload, '\"batch\":1', '\"batch\":' || '1' || hex(zeroblob(15)))",
        "workload is .*, which is not JSON|the task cannot be read",
    ),
    "a row of 5 MB": ("update trial set error = hex(zeroblob(3000000)) where number = 1", "too big|too large"),
    "other text": ("update trial set error = cast(x'ff' as text) where number = 1", r"error is b'\\xff', not text"),
}


@pytest.mark.parametrize("kind", CELLS)
def test_an_invalid_value_is_rejected_with_its_location(database: Path, kind: str) -> None:
    script, message = CELLS[kind]
    rewrite_schema(database, ") strict", ")")
    rewrite_schema(database, "not null", "")
    execute(database, "drop index trial_task_key; " + script + ";")
    with pytest.raises(StoreError, match=message) as caught:
        import_(database)
    assert str(caught.value).startswith(f"{database}: ")
    assert "sed -i" not in str(caught.value)


def test_pages_with_cycles_are_rejected(database: Path) -> None:
    """A B-tree with a page that refers to itself many times has more rows than can be read."""
    page_size = 4096
    connection = sqlite3.connect(database)
    (root,) = connection.execute("select rootpage from sqlite_master where name = 'iteration'").fetchone()
    connection.close()
    cells = b"".join(root.to_bytes(4, "big") + bytes([number + 1]) for number in range(100))
    start = page_size - len(cells)
    pointers = b"".join((start + 5 * number).to_bytes(2, "big") for number in range(100))
    header = bytes([5]) + bytes(2) + (100).to_bytes(2, "big") + start.to_bytes(2, "big") + bytes(1)
    page = header + root.to_bytes(4, "big") + pointers
    with database.open("r+b") as file:
        file.seek((root - 1) * page_size)
        file.write(page + bytes(start - len(page)) + cells)
    with pytest.raises(StoreError, match="damaged"):
        import_(database)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_database_that_is_being_written_is_rejected(database: Path, suffix: str) -> None:
    Path(f"{database}{suffix}").write_bytes(b"x" * 100)
    with pytest.raises(StoreError, match="another program is writing to it"):
        import_(database)


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.write_bytes(b"SQLite format 3\0"),
        lambda path: path.write_bytes(b""),
        lambda path: path.symlink_to("nowhere"),
    ],
)
def test_a_file_that_is_no_database_is_rejected(tmp_path: Path, make: Callable[[Path], object]) -> None:
    (tmp_path / "there").mkdir()
    make(tmp_path / "there" / "x.sqlite")
    with pytest.raises(StoreError, match=r"is neither|is damaged, or is not|is not a database|there is no such"):
        import_(tmp_path / "there" / "x.sqlite")
    assert not (tmp_path / "here").exists()
