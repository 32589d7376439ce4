"""Parsing the cookbook: it describes every table, view and column, and every query works."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from sqlite_utils import Database

from anole.merge.schema import create_tables, create_views
from anole.report.cookbook import Recipe, column_text, cookbook, read_descriptions, read_recipes, with_empty_as_null
from anole.store.shard import Shard
from anole.task import Task

from ..record_project import Project

DESCRIPTIONS = read_descriptions((cookbook() / "README.md").read_text())
RECIPES = read_recipes(cookbook())


@pytest.fixture(scope="module")
def db() -> Database:
    db = Database(memory=True)
    create_tables(db.conn)
    create_views(db.conn)
    return db


def test_every_table_and_view_is_described_and_every_column(db: Database) -> None:
    names = {*db.table_names(), *db.view_names()}
    assert set(DESCRIPTIONS) == names
    assert {name for name in names if DESCRIPTIONS[name].is_view} == set(db.view_names())
    for name in db.table_names():
        assert set(DESCRIPTIONS[name].columns) == {column.name for column in db[name].columns}, name
    for name in names:
        text = DESCRIPTIONS[name].text
        assert text and "|" not in text and "Columns:" not in text


def test_columns_of_a_view_are_described_there_or_elsewhere() -> None:
    assert column_text(DESCRIPTIONS, "tuner_summary", "trials") == "of all these runs"
    assert column_text(DESCRIPTIONS, "best_trial", "trials") == "number in the run"
    assert column_text(DESCRIPTIONS, "best_trial", "gflops") == DESCRIPTIONS["trial"].columns["gflops"]
    assert column_text(DESCRIPTIONS, "trial", "label") is None
    assert "below 0.01" in (column_text(DESCRIPTIONS, "model_latency", "output_variation") or "")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """The database of a project with rows for every recipe, including runs on a CPU other than their target's."""
    project = Project(tmp_path_factory.mktemp("cookbook"))
    project.fill()
    elsewhere = {"measured_at": {"rpc": "b"}}
    for seed, host in enumerate(({"processor": "EPYC"}, {"processor": "Xeon"}, {"processor": "Xeon", **elsewhere})):
        task = Task(project.OTHER.workload, {**project.OTHER.target, "model": "EPYC"}, 1)
        run = replace(project.run_of(task, seed=seed), host={"name": "old", **host})
        project.tune(run, task, [1e-3, None])
    with Shard.open(project.shards, project.run_of(project.WIDE), project.WIDE) as shard:
        shard.append_iteration(1, {"rank_correlation": 0.4})
    project.merge()
    with closing(sqlite3.connect(project.database)) as connection:
        yield connection


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_recipe_returns_the_columns_that_it_names(database: sqlite3.Connection, recipe: Recipe) -> None:
    assert recipe.question.endswith("?")
    answer = database.execute(recipe.sql, dict.fromkeys(recipe.parameters))
    columns = {name for name, *_ in answer.description}
    assert answer.fetchall()
    assert {*recipe.columns, *re.findall(r"{(\w+)}", recipe.headline)} <= columns
    assert {column for count in recipe.counts for column in re.findall(r"^(?:count|sum|max) (\w+)", count)} <= columns
    chart = json.dumps(recipe.chart)
    fields = {one or other for one, other in re.findall(r'"field": "(\w+)"|datum\.(\w+)', chart)}
    assert fields <= {*columns, *re.findall(r'"as": "(\w+)"', chart)}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("isolation_and_network", ("resnet18-cpu", "conv2d 64->64 k3x3 s1 56x56", 1.05, 1.158, 1)),
        ("wrong_machine", ("dense 256->10", "EPYC", "Xeon", "old", "autotvm", 2)),
    ],
)
def test_only_matching_rows_are_found(database: sqlite3.Connection, name: str, row: tuple[object, ...]) -> None:
    (found,) = database.execute(RECIPES[name].sql).fetchall()
    assert found[: len(row)] == row


def test_a_task_is_chosen_by_its_label_or_by_the_beginning_of_its_key(database: sqlite3.Connection) -> None:
    for name in (name for name, recipe in RECIPES.items() if "task" in recipe.parameters):
        rows = [
            database.execute(RECIPES[name].sql, {**dict.fromkeys(RECIPES[name].parameters), "task": task}).fetchall()
            for task in (Project.WIDE.label, Project.WIDE.key[:12])
        ]
        assert rows[0] == rows[1] != [] and {row[0] for row in rows[0]} == {Project.WIDE.label}


def test_all_parts_of_a_recipe_are_parsed() -> None:
    assert set(RECIPES) == {path.stem for path in (cookbook() / "queries").glob("*.sql")}
    assert {path.stem for path in (cookbook() / "queries").glob("*.json")} == {n for n in RECIPES if RECIPES[n].chart}
    assert RECIPES["best_config_per_layer"].parameters == ("model", "target")
    assert RECIPES["noise"].parameters == ()
    assert RECIPES["slowest_layers"].remark.startswith("Layers that occur several times")
    sizes = RECIPES["build_sizes"]
    assert (sizes.remark, sizes.counts, sizes.columns[:2]) == ("", ("count build",), ("build", "target"))
    assert sizes.remedy == "`snakemake --cores all` compiles the builds of models.yaml."


def test_an_empty_parameter_means_all() -> None:
    recipe = Recipe("q", "?", "", "select coalesce(:model, 'all'), ':b', '$.a'", ("model",))
    found = sqlite3.connect(":memory:").execute(with_empty_as_null(recipe), {"model": ""}).fetchone()
    assert found == ("all", ":b", "$.a")
