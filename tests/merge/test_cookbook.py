"""The cookbook as programs read it: every table, view, column and query of it is found."""

from __future__ import annotations

import sqlite3

import pytest
from sqlite_utils import Database

from anole.merge.cookbook import Query, column_text, cookbook, read_descriptions, read_queries, with_empty_as_null
from anole.merge.schema import create_tables, create_views

DESCRIPTIONS = read_descriptions((cookbook() / "README.md").read_text())


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
        assert (
            DESCRIPTIONS[name].text and "|" not in DESCRIPTIONS[name].text and "Columns:" not in DESCRIPTIONS[name].text
        )


def test_a_view_tells_of_a_column_what_its_own_lines_say_or_else_another_ones() -> None:
    assert column_text(DESCRIPTIONS, "tuner_summary", "trials") == "of all these runs"
    assert column_text(DESCRIPTIONS, "best_trial", "trials") == "how many the run has"
    assert column_text(DESCRIPTIONS, "best_trial", "gflops") == DESCRIPTIONS["trial"].columns["gflops"]
    assert column_text(DESCRIPTIONS, "trial", "label") is None
    assert "below 0.01" in (column_text(DESCRIPTIONS, "model_latency", "output_variation") or "")


def test_every_query_has_a_question_and_its_parameters() -> None:
    queries = {query.name: query for query in read_queries(cookbook())}
    assert set(queries) == {path.stem for path in (cookbook() / "queries").glob("*.sql")}
    assert all(query.question.endswith("?") for query in queries.values())
    assert queries["best_config_per_layer"].parameters == ("model", "target")
    assert queries["noise"].parameters == ()
    assert queries["slowest_layers"].remark.startswith("A layer that occurs several times")


def test_an_empty_parameter_means_all() -> None:
    query = Query("q", "?", "", "select coalesce(:model, 'all'), ':b', '$.a'", ("model",))
    found = sqlite3.connect(":memory:").execute(with_empty_as_null(query), {"model": ""}).fetchone()
    assert found == ("all", ":b", "$.a")
