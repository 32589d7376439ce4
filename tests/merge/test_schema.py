"""The tables: constraints, columns, and databases of other versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from anole.codec import encode
from anole.errors import StoreError
from anole.merge.database import seal_path
from anole.merge.exchange.importing import ImportCounts, import_records
from anole.merge.schema import columns, create_views, version

from ..record_project import execute

OLDER = (
    "drop table size_latency",
    "alter table kernel_latency drop column peak_flop_per_s",
    "alter table evaluation drop column speedup_low; alter table evaluation drop column speedup_high",
    "alter table load_latency drop column start_s; drop table kernel_profile; drop table kernel_latency",
    "drop index trial_status",
    "drop table load_latency",
    "alter table evaluation drop column averaged_draws",
    "alter table evaluation drop column output_variation",
    "alter table run drop column sealed; drop table checksum",
    "drop table refinement",
    "alter table trial drop column relative_error; alter table confirmation drop column relative_error",
    "drop table space",
    "alter table evaluation drop column snr_db",
    "drop table warm_start; alter table build drop column shared",
)
"""Statements that downgrade a database version by version to the first one."""

LOST = {"size_latency", "load_latency", "kernel_profile", "kernel_latency", "refinement", "space", "warm_start"}


def age(database: Path, n_back: int) -> None:
    """Downgrade a database to a version before 0.7."""
    with closing(sqlite3.connect(database)) as connection:
        views = connection.execute("select name from sqlite_master where type = 'view'").fetchall()
        for (view,) in views:
            connection.execute(f"drop view {view}")
    execute(
        database,
        "pragma user_version = 0; create table _sqlite_migrations (migration_set text, name text, applied_at text); "
        "create table checksum (kind text, key text, sha256 text); "
        f"insert into checksum values ('run', 'a', 'b'); {'; '.join(OLDER[:n_back])};",
    )


@pytest.mark.examples(4)
@pytest.mark.parametrize("n_back", range(len(OLDER) + 1))
def test_a_database_of_any_older_version_is_upgraded(project, tmp_path: Path, dump: Callable, n_back: int) -> None:
    """Records without files are kept."""
    project.fill()
    project.merge()
    before = dump(project.database)
    age(project.database, n_back)
    assert import_records(project.database, tmp_path / "here") == ImportCounts(new=4, trials=15)
    for folder in ("work", "builds"):
        (project.folder / folder).rename(project.folder / f"former {folder}")
    merged = project.merge()
    assert (merged.changed_runs, merged.runs_without_shard, merged.trials, merged.replaced) == (0, 4, 15, ())
    after = dump(project.database)
    for name in columns().keys() - (LOST if n_back else set()) - {"evaluation", "run"}:
        assert after[name] == before[name], name
    assert after["schema"] == before["schema"]
    assert [row[:-1] for row in after["run"]] == [row[:-1] for row in before["run"]]
    for folder in ("work", "builds"):
        (project.folder / f"former {folder}").rename(project.folder / folder)
    seal_path(project.database).unlink()
    assert project.merge().replaced == ()
    assert dump(project.database) == before


def test_a_database_of_a_newer_version_is_not_changed(project, tmp_path: Path) -> None:
    project.fill()
    project.merge()
    execute(project.database, f"pragma user_version = {version() + 1}")
    before = {path: path.read_bytes() for path in project.database.parent.iterdir()}
    message = rf"by a newer Anole \(its tables have version {version() + 1}; .* up to {version()}\); update Anole"
    with pytest.raises(StoreError, match=message + ", or move the file away and merge again$"):
        project.merge()
    with pytest.raises(StoreError, match=message + "$"):
        import_records(project.database, tmp_path / "here")
    assert {path: path.read_bytes() for path in project.database.parent.iterdir()} == before


def test_a_changed_schema_rebuilds_the_database(project, dump: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if the database is unchanged since the last merge."""
    project.fill()
    project.merge()
    before, inode = dump(project.database), project.database.stat().st_ino
    monkeypatch.setattr("anole.merge.database.schema_sha256", lambda: "other")
    assert project.merge().changed_runs == 0
    assert dump(project.database) == before and project.database.stat().st_ino != inode


def test_every_table_is_strict_and_keyed_by_its_first_columns(db: sqlite3.Connection) -> None:
    strict = dict(
        db.execute("select name, strict from pragma_table_list where type = 'table' and name not like 'sqlite_%'")
    )
    assert strict == dict.fromkeys(columns(), 1)
    for table in columns():
        key_positions = [row[5] for row in db.execute(f"pragma table_info({table})")]
        n_keys = max(key_positions)
        assert key_positions[:n_keys] == [*range(1, n_keys + 1)] and n_keys, table


def test_a_trial_has_exactly_the_fields_of_a_record(project) -> None:
    for table, record, keys in [
        ("trial", project.trial_of(0), {"run_key", "task_key"}),
        ("confirmation", project.confirmation_of(project.trial_of(0), 1e-3, 1), {"run_key", "number"}),
    ]:
        assert set(columns()[table]) == keys | encode(record).keys()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("insert into task values ('k', 'dense', 'l', '{', '{}', 1, 2)", "CHECK constraint failed"),
        ("insert into task values ('k', 'dense', 'l', '{}', '{}', 1, 'many')", "cannot store TEXT value"),
        ("insert into iteration values ('k', 0, '{}')", "FOREIGN KEY constraint failed"),
    ],
)
def test_invalid_rows_are_rejected(db: sqlite3.Connection, statement: str, problem: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=problem):
        db.execute(statement)


def names(db: sqlite3.Connection, view: str) -> list[str]:
    return [name for name, *_ in db.execute(f"select * from {view}").description]


def test_model_latency_has_the_documented_columns(db: sqlite3.Connection) -> None:
    assert names(db, "model_latency") == [
        *("model", "target", "preset", "latency_s", "reference", "reference_latency_s", "speedup", "relative_error"),
        *("build", "output_variation", "precision", "reference_precision", "exact_error"),
    ]


def test_views_are_recreated(db: sqlite3.Connection) -> None:
    db.execute("drop view failures")
    db.execute("create view failures as select 1 as old")
    create_views(db)
    assert names(db, "failures")[:3] == ["status", "error", "count"]
