"""Merging into a changed or damaged database: rebuilding it from the files, and copying or reporting other content."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anole.errors import StoreError
from anole.merge.database import seal_path
from anole.merge.exchange.importing import import_records
from anole.store.shard import read_shard, shard_paths

from ..examples import examples
from ..record_project import execute

ENDLESS = "with recursive n (i) as (select 1 union all select i + 1 from n)"


@pytest.fixture
def merged(project: Any) -> Any:
    """A merged project, and a run, a model, a build and an evaluation that only its database holds."""
    project.fill()
    project.merge()
    project.evaluate("resnet34-cpu", loads=project.LOADS, kernels=project.KERNELS)
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


def asides(project: Any) -> list[Path]:
    return sorted(project.database.parent.glob("tuning.sqlite.damaged-*"))


def missing_of(project: Any, replaced: tuple[str, ...]) -> list[str]:
    """Return the sentences about content that a merge could not copy; assert that the old file is kept."""
    (aside,) = asides(project)
    head = "was rebuilt from shards and documents; the old file was kept as"
    assert replaced[0] == f"{project.database}: {head} {aside.name}"
    return [sentence.removeprefix(f"{project.database}: ") for sentence in replaced[1:]]


@pytest.mark.parametrize("seal", ["valid", None, "{", '{"schema": 1}'])
def test_a_database_that_another_program_changed_is_rebuilt_with_its_records(
    merged: Any, dump: Callable, seal: str | None
) -> None:
    before = dump(merged.database)
    execute(merged.database, f"update trial set latency_s = 1e-9 where task_key = '{merged.CONV.key}'; vacuum;")
    if seal != "valid":
        seal_path(merged.database).unlink()
    if seal is not None and seal != "valid":
        seal_path(merged.database).write_text(seal)
    result = merged.merge()
    assert (result.changed_runs, result.runs_without_shard, result.replaced, asides(merged)) == (0, 1, (), [])
    assert dump(merged.database) == before


def test_objects_of_the_user_are_copied_and_stay(merged: Any, dump: Callable) -> None:
    execute(
        merged.database,
        """
        create table note (text, "a ""b" integer primary key, upper text generated always as (upper(text)));
        insert into note (text) values ('mine');
        create table mark (run_key text references run (key), n integer check (n > 0));
        create table tag (run_key text, number integer, foreign key (run_key, number) references trial);
        create table log (text);
        insert into tag select run_key, number from trial;
        pragma ignore_check_constraints = on;
        insert into mark values ('of no run', -1);
        create index by_text on note (text);
        create index by_cv on trial (cv);
        create view tagged as select label, number, text from best_trial join tag using (run_key), note;
        create trigger logged after insert on note begin insert into log values (new.text); end;
        """,
    )
    before, tagged = dump(merged.database), merged.rows("select * from tagged order by label, number")
    assert (merged.merge().replaced, asides(merged)) == ((), [])
    after = dump(merged.database)
    assert after == before and after["log"] == [] and len(tagged) > 5
    for latency_s in (9e-3, 8e-3):
        merged.tune(merged.run_of(merged.CONV), merged.CONV, [latency_s])
        assert merged.merge().replaced == ()
        assert merged.rows("select * from tagged order by label, number") == tagged
    assert merged.rows("select count(*) as n from sqlite_master where name in ('logged', 'by_cv')") == [{"n": 2}]
    assert merged.rows("pragma journal_mode") == [{"journal_mode": "delete"}]
    assert merged.rows("pragma integrity_check") == [{"integrity_check": "CHECK constraint failed in mark"}]


def test_content_that_cannot_be_copied_is_reported_and_the_old_file_is_kept(merged: Any) -> None:
    wide = merged.run_of(merged.WIDE).key
    execute(
        merged.database,
        f"""
        alter table trial add column remark text;
        create virtual table found using fts5 (text);
        create table broken (text);
        insert into broken values (cast(x'ff' as text));
        update trial set status = 'fine' where run_key = '{wide}' and number = 1;
        update model set inputs = '{{}}' where name = 'resnet34';
        """,
    )
    changed = merged.database.read_bytes()
    replaced = merged.merge().replaced
    assert asides(merged)[0].read_bytes() == changed
    assert [sentence.split(" (")[0] for sentence in missing_of(merged, replaced)] == [
        "1 of its runs without a local file could not be copied",
        "1 of its builds without a local file could not be copied",
        "1 of its evaluations without a local file could not be copied",
        "your column trial.remark was left out; use a separate table",
        "your table found could not be copied",
        "your table broken could not be copied",
    ]
    assert merged.rows("select inputs from model where name = 'resnet34'") == [{"inputs": "{}"}]
    assert merged.rows("pragma foreign_key_check") == merged.rows("select * from run where key = ?", wide) == []
    assert merged.merge().replaced == ()


def test_replaced_newer_records_are_reported(merged: Any) -> None:
    """They are reported even if the database is not trusted."""
    run = merged.run_of(merged.CONV)
    path = merged.tune(run, merged.CONV, [1e-3])
    folder = merged.compile("resnet18", [(merged.CONV, 4, None)], created_at="2026-11-22T00:00:00.000Z").parent
    evaluation = merged.evaluate("resnet18-cpu", created_at="2026-11-22T01:00:00.000Z")
    merged.merge()
    execute(merged.database, "create table note (text)")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    merged.compile("resnet18", [(merged.CONV, 4, None)])
    evaluation.unlink()
    assert merged.merge().replaced == (
        f"{path}: 1 trials that the database had are not in this shard; the database now matches the shard",
        f"{folder}/build.json: replaced a build of this name that was compiled later",
    )
    assert merged.rows("select * from evaluation where build = 'resnet18-cpu'") == []


def test_a_newer_state_of_a_run_in_an_untrusted_database_stays(project: Any) -> None:
    run = project.run_of(project.CONV)
    path = project.tune(run, project.CONV, [1e-3])
    copy = path.with_name(f"{run.key}.0123456789ab.jsonl")
    shutil.copy(path, copy)
    project.tune(run, project.CONV, [2e-3])
    project.merge()
    path.unlink()
    execute(project.database, "create table note (text)")
    result = project.merge()
    assert result.ignored == (f"{copy}: is not merged: the database has a newer state of its run",)
    assert (result.trials, result.changed_runs) == (2, 0)


def possible_damages(content: bytes) -> dict[str, bytes]:
    """Return states of a file after faults of the disk."""
    return {
        "empty": b"",
        "text": b"these are not the bytes of a database\n" * 100,
        "zeros": bytes(len(content)),
        "half": content[: len(content) // 2],
        "no header": bytes(100) + content[100:],
        "no schema": content[:100] + bytes(3000) + content[3100:],
        "a page less": content[:-4096],
    }


@pytest.mark.parametrize("kind", possible_damages(b"x"))
def test_an_unreadable_database_is_kept_under_another_name(project: Any, dump: Callable, kind: str) -> None:
    project.fill()
    project.merge()
    before, damaged = dump(project.database), possible_damages(project.database.read_bytes())[kind]
    project.database.write_bytes(damaged)
    journal = project.database.with_name("tuning.sqlite-wal")
    if kind == "text":
        journal.write_bytes(b"x" * 100)
    result = project.merge()
    assert dump(project.database) == before and not journal.exists()
    assert all(aside.read_bytes() == (b"x" * 100 if "-wal" in aside.name else damaged) for aside in asides(project))
    assert bool(asides(project)) == bool(result.replaced) == bool(damaged)
    assert project.merge().replaced == ()


@pytest.mark.parametrize("table", ["run (distance_km real)", "model (name text, year integer, wheels integer)"])
def test_a_database_of_another_program_is_not_changed(project: Any, table: str) -> None:
    project.database.parent.mkdir()
    execute(project.database, f"create table {table}; create table other (x)")
    before = project.database.read_bytes()
    with pytest.raises(StoreError, match=r"tuning\.sqlite: is not a database of Anole: its table .* has other columns"):
        project.merge()
    assert project.database.read_bytes() == before


@pytest.mark.parametrize(
    "script",
    [
        f"alter table run rename to old; create view run as {ENDLESS} select i as key, old.* from n, old;",
        f"drop table warm_start; create view warm_start as {ENDLESS} select i as run_key from n;",
        "drop table warm_start; create table own (text); pragma writable_schema = on; "
        f"update sqlite_master set sql = 'create table own as {ENDLESS} select i from n' where name = 'own';",
    ],
)
def test_a_malicious_database_does_not_block_a_merge(merged: Any, script: str) -> None:
    began_s = time.monotonic()
    execute(merged.database, "pragma legacy_alter_table = on; " + script)
    assert missing_of(merged, merged.merge().replaced)
    assert time.monotonic() - began_s < 20


def test_a_failed_merge_leaves_the_damaged_database(merged: Any) -> None:
    merged.database.write_bytes(merged.database.read_bytes()[:30000])
    before = {path: path.read_bytes() for path in merged.database.parent.iterdir()}
    path = merged.tune(merged.run_of(merged.CONV, seed=9), merged.CONV, [1e-3])
    path.write_bytes(path.read_bytes().replace(b"trial", b"trail"))
    with pytest.raises(StoreError, match="trail"):
        merged.merge()
    assert {path: path.read_bytes() for path in merged.database.parent.iterdir()} == before


def damage_content(content: bytes, n: int) -> Iterator[tuple[str, bytes]]:
    """Yield states of a file: changed bits and bytes, a missing end, and pages that are empty, copied or swapped."""
    rng, size = random.Random(0), 4096
    offsets = [at for at, byte in enumerate(content) if byte]
    pages = [content[start : start + size] for start in range(0, len(content), size)]
    for _ in range(n):
        at, length = rng.choice(offsets), rng.randrange(1, 600)
        one, two = sorted(rng.sample(range(1, len(pages)), 2))
        yield "bit", content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        yield "bytes", content[:at] + rng.randbytes(length) + content[at + length :]
        yield "end", content[:at]
        for page, others in ((pages[one], pages[two]), (pages[one], pages[one]), (pages[one], bytes(size))):
            changed = [*pages[:one], others, *pages[one + 1 : two], page, *pages[two + 1 :]]
            yield "pages", b"".join(changed)


@pytest.mark.parametrize("n", [examples(12), pytest.param(60, marks=pytest.mark.guard)])
def test_merging_into_a_damaged_database_restores_all_files(merged: Any, dump: Callable, n: int) -> None:
    """Other runs and documents are copied entirely or not at all; an error leaves the database unchanged."""
    content, before = merged.database.read_bytes(), dump(merged.database)
    fresh = merged.folder / "fresh.sqlite"
    merged.merge(database=fresh)
    minimal = dump(fresh)
    for _, state in damage_content(content, n):
        merged.database.write_bytes(state)
        try:
            result = merged.merge()
        except StoreError as error:
            assert str(error).startswith(f"{merged.database}: ") and "\n" not in str(error)
            assert merged.database.read_bytes() == state
            continue
        after = dump(merged.database)
        for table, rows in after.items():
            assert set(minimal[table]) <= set(rows), table
            assert len(rows) <= len(before[table]) or result.replaced, table
        assert {row[:2] for row in after["trial"]} in ({row[:2] for row in each["trial"]} for each in (minimal, before))
        assert merged.rows("pragma foreign_key_check") == []
        assert bool(asides(merged)) == any("was rebuilt" in sentence for sentence in result.replaced)
        for path in asides(merged):
            path.unlink()


@pytest.mark.parametrize("n", [examples(12), pytest.param(60, marks=pytest.mark.guard)])
def test_importing_a_damaged_database_imports_all_runs_or_nothing(merged: Any, n: int) -> None:
    """After changed bits and bytes, one run may have another valid value: a database has no checksums."""
    content, here, foreign = merged.database.read_bytes(), merged.folder / "here", merged.folder / "foreign.sqlite"

    def imported(state: bytes) -> set[str]:
        shutil.rmtree(here, ignore_errors=True)
        foreign.write_bytes(state)
        import_records(foreign, here)
        return {read_shard(path).digest for path in shard_paths(here)}

    undamaged, n_rejected, n_changed = imported(content), 0, 0
    for kind, state in damage_content(content, n):
        try:
            found = imported(state)
        except StoreError as error:
            assert str(error).startswith(f"{foreign}: ") and "\n" not in str(error)
            n_rejected += 1
        else:
            assert len(found) == len(undamaged) and len(found - undamaged) <= (kind in ("bit", "bytes")), kind
            n_changed += found != undamaged
    assert n_rejected
    print(f"{n_rejected} of {6 * n} databases were rejected, and {n_changed} were imported with another value")
