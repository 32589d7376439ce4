from __future__ import annotations

import sqlite3
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from sqlite_utils import Database

from anole.documents.plain import to_plain
from anole.errors import StoreError
from anole.merge.migrations import create_views, migrations, unknown_migrations

NAMES = [migration.name for migration in migrations.pending(Database(memory=True))]
README = Path(__file__).parents[2] / "db" / "README.md"


@pytest.fixture
def db() -> Database:
    db = Database(memory=True)
    db.execute("pragma foreign_keys = on")
    migrations.apply(db)
    create_views(db)
    return db


@pytest.mark.parametrize("version", range(len(NAMES) + 1))
def test_a_database_of_any_older_version_is_brought_up_to_date(
    project, new_project: Callable, dump: Callable, version: int
) -> None:
    project.fill()
    project.database.parent.mkdir()
    old = Database(project.database)
    migrations.apply(old, stop_before=NAMES[version] if version < len(NAMES) else None)
    assert [migration.name for migration in migrations.applied(old)] == NAMES[:version]
    old.close()
    project.merge()
    fresh = project.folder / "fresh.sqlite"
    project.merge(database=fresh)
    assert dump(project.database) == dump(fresh)


def test_a_database_of_a_newer_version_is_left_alone(project) -> None:
    project.fill()
    project.merge()
    db = Database(project.database)
    newer = {"migration_set": "anole", "name": "colours", "applied_at": "2030-01-01"}
    db.table("_sqlite_migrations").insert(newer)
    db.table("_sqlite_migrations").insert({**newer, "migration_set": "the user's", "name": "own"})
    assert unknown_migrations(db) == ["colours"]
    db.close()
    before = project.database.read_bytes()
    project.tune(project.run_of(project.CONV, seed=1), project.CONV, [1e-3])
    with pytest.raises(StoreError, match=r"written by a newer Anole \(colours is not known here\)"):
        project.merge()
    assert project.database.read_bytes() == before
    assert sorted(path.name for path in project.database.parent.iterdir()) == ["tuning.sqlite", "tuning.sqlite.seal"]


def test_every_table_is_strict_and_keyed(db: Database) -> None:
    for name in set(db.table_names()) - {"_sqlite_migrations"}:
        assert db.table(name).strict, name
        assert db.table(name).pks != ["rowid"], name


def test_a_trial_has_exactly_the_fields_of_a_record(project, db: Database) -> None:
    for table, record, keys in [
        ("trial", project.trial_of(0), {"run_key", "task_key"}),
        ("confirmation", project.confirmation_of(project.trial_of(0), 1e-3, 1), {"run_key", "number"}),
    ]:
        assert {column.name for column in db.table(table).columns} == keys | to_plain(record).keys()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("insert into task values ('k', 'dense', 'l', '{', '{}', 1, 2)", "CHECK constraint failed"),
        ("insert into task values ('k', 'dense', 'l', '{}', '{}', 1, 'many')", "cannot store TEXT value"),
        ("insert into iteration values ('k', 0, '{}')", "FOREIGN KEY constraint failed"),
    ],
)
def test_what_does_not_fit_is_refused(db: Database, statement: str, problem: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=problem):
        db.execute(statement)


def test_model_latency_has_the_agreed_columns(db: Database) -> None:
    assert [column.name for column in db.view("model_latency").columns] == [
        "model",
        "target",
        "preset",
        "latency_s",
        "reference",
        "reference_latency_s",
        "speedup",
        "relative_error",
        "build",
        "output_variation",
    ]


def test_views_are_made_anew(db: Database) -> None:
    db.execute("drop view failures")
    db.execute("create view failures as select 1 as old")
    create_views(db)
    assert [column.name for column in db.view("failures").columns][:3] == ["status", "error", "count"]


def test_the_views_are_part_of_the_package() -> None:
    assert resources.files("anole.merge").joinpath("views.sql").is_file()


def test_the_readme_names_every_table_view_and_column(db: Database) -> None:
    text = README.read_text()
    for name in {*db.table_names(), *db.view_names()} - {"_sqlite_migrations"}:
        section = text.split(f"### {name}\n", 1)
        assert len(section) == 2, f"{README.name} has no section on {name}"
        described = section[1].split("\n##", 1)[0]
        for column in db[name].columns:
            assert f"`{column.name}`" in described, f"{README.name} does not say what {name}.{column.name} is"
