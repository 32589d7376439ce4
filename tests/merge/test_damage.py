"""A database that is damaged or was changed: nothing in it is believed, and what it alone held is kept or told."""

from __future__ import annotations

import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anole.errors import StoreError
from anole.merge.seal import seal_path

pytestmark = pytest.mark.guard

ENDLESS = "with recursive n (i) as (select 1 union all select i + 1 from n)"

Dump = dict[str, list[tuple[Any, ...]]]


@pytest.fixture
def merged(project: Any, new_project: Callable) -> Any:
    """A merged project, and a run, a model and a build that only its database holds."""
    project.fill()
    project.merge()
    only = {
        project.shards / project.WIDE.key,
        *project.folder.glob("*/*/resnet34*"),
        *project.folder.glob("*/resnet34*"),
    }
    for path in only:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert project.merge().runs_without_shard == 1
    return project


def execute(database: Path, script: str) -> None:
    connection = sqlite3.connect(database)
    connection.executescript(script)
    connection.close()


def asides(project: Any) -> list[Path]:
    return sorted(project.database.parent.glob("tuning.sqlite.damaged-*"))


def flip(path: Path, old: bytes, new: bytes) -> None:
    """Changes bytes as a fault of the disk does, without the knowledge of SQLite."""
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def test_the_users_own_tables_cost_a_merge_of_everything_and_nothing_else(merged: Any, dump: Callable) -> None:
    execute(merged.database, "create table note (text); insert into note values ('mine');")
    before = dump(merged.database)
    result = merged.merge()
    assert (result.changed_runs, result.replaced, asides(merged)) == (0, (), [])
    assert dump(merged.database) == before


def test_a_changed_row_that_a_shard_holds_is_written_again(merged: Any, dump: Callable) -> None:
    before = dump(merged.database)
    execute(merged.database, f"update trial set latency_s = 1e-9 where task_key = '{merged.CONV.key}'")
    result = merged.merge()
    assert (result.replaced, asides(merged)) == ((), [])
    assert dump(merged.database) == before


def test_a_changed_row_that_no_file_holds_is_not_believed(merged: Any) -> None:
    execute(merged.database, f"update trial set latency_s = 1e-9 where task_key = '{merged.WIDE.key}' and number = 1")
    changed = merged.database.read_bytes()
    result = merged.merge()
    (aside,) = asides(merged)
    assert aside.read_bytes() == changed
    key = merged.run_of(merged.WIDE).key
    assert result.replaced == (
        f"{merged.database}: is damaged (the run {key} is not as it was merged); it was kept as {aside.name}, and made "
        "anew from shards and documents",
        f"{merged.database}: 1 of its runs without a file here are not as they were merged, and are missing",
        f"{merged.database}: 1 of its builds without a file here are not as they were merged, and are missing",
        f"{merged.database}: 1 of its evaluations without a file here are not as they were merged, and are missing",
    )
    assert merged.rows("select count(*) as n from run where key = ?", key) == [{"n": 0}]
    assert merged.rows("select name from model order by name") == [{"name": "resnet18"}, {"name": "resnet34"}]
    assert merged.rows("pragma foreign_key_check") == []
    assert merged.merge().replaced == ()


def test_a_run_that_a_build_needs_is_carried_over_before_the_build_is_merged(project: Any, dump: Callable) -> None:
    project.fill()
    project.merge()
    before = dump(project.database)
    shutil.rmtree(project.shards / project.WIDE.key)
    (project.folder / "work/evaluations/resnet18-cpu.json").unlink()
    execute(project.database, "update evaluation set speedup = 99 where build = 'resnet18-cpu' and reference = 'torch'")
    result = project.merge()
    assert [text.split(": ", 1)[1] for text in result.replaced[1:]] == [
        "1 of its evaluations without a file here are not as they were merged, and are missing"
    ]
    after = dump(project.database)
    of_evaluations = {"evaluation", "load_latency", "kernel_latency", "kernel_profile"}
    assert {table for table in before if after[table] != before[table]} == {*of_evaluations, "checksum"}


@pytest.mark.parametrize(
    "script",
    [
        "delete from checksum where kind = 'run'",
        "update run set seed = 17",
        "insert into run select replace(key, 'a', 'b'), task_key, preset, seed, tuner_version, settings, threads, "
        "host, versions, started_at, shard_bytes, shard_sha256, sealed from run",
        "update model_task set weight = 99 where model = 'resnet34'",
        "update build set preset = 'x' where name = 'resnet34-cpu'",
        "update evaluation set speedup = 99 where build = 'resnet34-cpu'",
        "update task set flop = 1",
        "update trial set run_key = run_key || number",
        "alter table trial rename column cv to cw",
    ],
)
def test_every_change_of_what_no_file_holds_is_noticed(merged: Any, script: str) -> None:
    execute(merged.database, script)
    assert "is damaged" in merged.merge().replaced[0]
    assert len(asides(merged)) == 1


def test_a_flipped_bit_within_a_row_is_noticed(merged: Any, dump: Callable) -> None:
    before = dump(merged.database)
    flip(merged.database, b"Segmentation", b"segmentation")
    assert merged.merge().changed_runs == 0
    assert dump(merged.database) == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"applied_at" TEXT', b'"applied_at" TEXU', None),
        (b'"id" INTEGER PRIMARY', b'"id" INTEGER PRIMaRY', None),
        (b'"applied_at" TEXT', b'"axplied_at" TEXT', "no such column: applied_at"),
        (b"CREATE UNIQUE INDEX", b"CREATE UNIqUE INDEX", None),
        (b"indexrun_presetrun", b"iNdexrun_presetrun", "lists iNdex run_preset of run"),
        (b"indexrun_presetrun", b"indexrun_pResetrun", "lists index run_pReset of run"),
        (b"indexrun_presetrun", b"indexrun_presetruN", "lists index run_preset of ruN"),
        (b"!\x13\x01[indexrun_preset", b" \x13\x01[indexrun_preset", "lists index b'run_preset' of run"),
        (b"[indexrun_presetrun", b"Zindexrun_presetrun", "index run_preset has another definition"),
        (b"viewbest_trialbest", b"viewbeSt_trialbest", "lists view beSt_trial of best_trial"),
        (b"tabletrialtrial", b"tabletRialtrial", "lists table tRial of trial"),
        (b"CREATE TABLE trial", b"CREATE TABLE tRial", "of trial, but defines no such thing"),
        (b"CREATE TABLE trial", b"CREATE TAbLE trial", "table trial has another definition"),
        (b"references task (key)", b"references task (kex)", "table run has another definition"),
    ],
)
def test_a_flipped_bit_in_the_schema_is_mended(merged: Any, dump: Callable, old: bytes, new: bytes, said: str) -> None:
    before = dump(merged.database)
    flip(merged.database, old, new)
    replaced = merged.merge().replaced
    assert dump(merged.database) == before
    assert (said in replaced[0]) if said else not replaced


def test_a_table_of_trials_may_have_columns_of_the_user(merged: Any, dump: Callable) -> None:
    execute(
        merged.database, "alter table run add column \"my, (own\" text default '),' check (seed <> 7) /* it's (mine */"
    )
    before = dump(merged.database)
    assert merged.merge().replaced == ()
    assert dump(merged.database) == before
    flip(merged.database, b"default 0 check (sealed", b"default 1 check (sealed")
    assert "table run has another definition" in merged.merge().replaced[0]


def test_a_view_in_the_place_of_the_list_of_migrations_is_damage(project: Any) -> None:
    project.database.parent.mkdir()
    execute(project.database, "create view _sqlite_migrations as select 1 as migration_set")
    assert "_sqlite_migrations is no table" in project.merge().replaced[0]


def damages(content: bytes) -> dict[str, bytes]:
    """States of a file after faults of the disk."""
    return {
        "empty": b"",
        "text": b"these are not the bytes of a database\n" * 100,
        "zeros": bytes(len(content)),
        "half": content[: len(content) // 2],
        "no header": bytes(100) + content[100:],
        "no schema": content[:100] + bytes(3000) + content[3100:],
        "a page of zeros": content[:20480] + bytes(4096) + content[24576:],
        "a page less": content[:-4096],
    }


@pytest.mark.parametrize("kind", damages(b"x"))
def test_a_damaged_file_is_kept_aside_and_made_anew(project: Any, dump: Callable, kind: str) -> None:
    project.fill()
    project.merge()
    before, damaged = dump(project.database), damages(project.database.read_bytes())[kind]
    project.database.write_bytes(damaged)
    result = project.merge()
    assert dump(project.database) == before
    if damaged:
        (aside,) = asides(project)
        assert aside.read_bytes() == damaged
        assert result.replaced[0].startswith(f"{project.database}: is damaged (")
        assert f"it was kept as {aside.name}" in result.replaced[0]
    assert project.merge().replaced == ()


def test_what_only_a_damaged_file_holds_is_carried_over(merged: Any, dump: Callable) -> None:
    execute(
        merged.database,
        """
        create table note (text, "a ""b" integer primary key, upper text generated always as (upper(text)));
        insert into note (text) values ('mine');
        create table broken (text);
        insert into broken select hex(zeroblob(1000)) from trial;
        create index by_text on note (text);
        create view noted as select text from note;
        create trigger harm after insert on note begin delete from note; end;
        """,
    )
    merged.merge()
    before = dump(merged.database)
    flip(merged.database, b"0" * 1000, b"\xff" * 1000)
    connection = sqlite3.connect(merged.database)
    (root,) = connection.execute("select rootpage from sqlite_master where name = 'broken'").fetchone()
    connection.close()
    with merged.database.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(range(256)) * 16)
    result = merged.merge()
    assert "is damaged" in result.replaced[0]
    assert [text.split(": ", 1)[1].split(" could not")[0] for text in result.replaced[1:]] == [
        "your table broken",
        "your trigger harm",
    ]
    after = dump(merged.database)
    for table in set(before) - {"schema", "broken"}:
        assert after[table] == before[table], table
    assert merged.rows("select * from noted") == [{"text": "mine"}]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            f"alter table run rename to old; create view run as {ENDLESS} select i as key, old.* from n, old;",
            "1 of its runs without a file here",
        ),
        (
            "pragma legacy_alter_table = on; alter table checksum rename to old; drop table warm_start; "
            f"create view checksum as {ENDLESS} select i as kind, i as key, i as sha256 from n;",
            "runs without a shard here are missing",
        ),
        (
            "drop table warm_start; create table own (text); pragma writable_schema = on; "
            f"update sqlite_master set sql = 'create table own as {ENDLESS} select i from n' where name = 'own';",
            "your own tables could not be read",
        ),
    ],
)
def test_a_database_that_was_made_to_harm_ends_soon(merged: Any, script: str, said: str) -> None:
    began_s = time.monotonic()
    execute(merged.database, script)
    result = merged.merge()
    assert "is damaged" in result.replaced[0]
    assert said in " ".join(result.replaced)
    assert time.monotonic() - began_s < 20


def test_a_merge_that_fails_leaves_the_damaged_file(merged: Any) -> None:
    merged.database.write_bytes(merged.database.read_bytes()[:30000])
    before = {path: path.read_bytes() for path in merged.database.parent.iterdir()}
    path = merged.tune(merged.run_of(merged.CONV, seed=9), merged.CONV, [1e-3])
    path.write_bytes(path.read_bytes().replace(b"trial", b"trail"))
    with pytest.raises(StoreError, match="trail"):
        merged.merge()
    assert {path: path.read_bytes() for path in merged.database.parent.iterdir()} == before


def test_without_its_seal_a_database_is_checked_and_sealed_again(merged: Any, dump: Callable) -> None:
    before = dump(merged.database)
    for text in (None, "{", '{"schema": 1}'):
        seal_path(merged.database).unlink()
        if text is not None:
            seal_path(merged.database).write_text(text)
        assert (merged.merge().changed_runs, asides(merged), dump(merged.database)) == (0, [], before)


def test_a_database_without_checksums_is_taken_as_it_is_and_gets_them(merged: Any, dump: Callable) -> None:
    before = dump(merged.database)
    seal_path(merged.database).unlink()
    execute(
        merged.database,
        "drop table checksum; alter table run drop column sealed; "
        "delete from _sqlite_migrations where name = 'checksums'",
    )
    assert merged.merge().replaced == ()
    del before["run"]
    after = dump(merged.database)
    assert {table: after[table] for table in before if table not in ("schema", "checksum")} == {
        table: before[table] for table in before if table not in ("schema", "checksum")
    }
    assert len(after["checksum"]) == len(before["checksum"])


def bits(content: bytes, n: int) -> list[bytes]:
    rng = random.Random(0)
    flipped = []
    for _ in range(n):
        at = rng.randrange(len(content))
        flipped.append(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
    return flipped


@pytest.mark.parametrize("n", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_flipped_bit_is_accepted_as_other_content(merged: Any, dump: Callable, n: int) -> None:
    content, before = merged.database.read_bytes(), dump(merged.database)
    fresh = merged.folder / "fresh.sqlite"
    merged.merge(database=fresh)
    least = dump(fresh)
    for state in bits(content, n):
        merged.database.write_bytes(state)
        try:
            result = merged.merge()
        except StoreError as error:
            assert str(error).startswith(f"{merged.database}: ")
            assert merged.database.read_bytes() == state
            continue
        after = dump(merged.database)
        if result.replaced:
            for table, rows in after.items():
                assert set(least[table]) <= set(rows) <= {*before[table], *least[table]}, table
        else:
            assert after == before
        for path in asides(merged):
            path.unlink()
