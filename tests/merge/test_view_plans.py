"""Views only read the rows that a condition selects, and have the same rows as slow reference versions."""

from __future__ import annotations

import sqlite3
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

SLOW = Path(__file__).with_name("slow_views.sql").read_text()
VIEWS = ("best_of_run", "best_trial", "tuning_curve", "tuner_summary")
LATENCIES = st.sampled_from([1e-3, 2e-3, 3e-3])
"""Few values, which makes ties common."""

TRIALS = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | LATENCIES), max_size=6, unique_by=itemgetter(0))
CONFIRMATIONS = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.none() | LATENCIES, st.integers(1, 3), st.integers(0, 2)), max_size=8
)
RUNS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("xy"), TRIALS, CONFIRMATIONS), max_size=6)


@pytest.fixture(scope="module", autouse=True)
def slow_views(db: sqlite3.Connection) -> None:
    db.execute("pragma foreign_keys = off")
    db.executescript(SLOW)


def fill(connection: sqlite3.Connection, runs: list[Any]) -> None:
    """Insert runs of three tasks; two of these tasks have the same label."""
    for table in ("confirmation", "trial", "run", "task"):
        connection.execute(f"delete from {table}")
    for number in range(3):
        row = (f"task{number}", "dense", f"label{number // 2}", "{}", "{}", 1, 10**6 * (1 + number))
        connection.execute("insert into task values (?, ?, ?, ?, ?, ?, ?)", row)
    for number, (task, preset, trials, confirmations) in enumerate(runs):
        key, task_key, flop = f"run{number}", f"task{task}", 10**6 * (1 + task)
        row = (key, task_key, preset, 0, 1, "{}", 1, "{}", "{}", "", 0, "", 1)
        connection.execute("insert into run values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        for at, (config, latency_s) in enumerate(trials):
            connection.execute(
                "insert into trial (run_key, number, task_key, iteration, config, status, error, latency_s, repeats, "
                "gflops, build_s, run_s, elapsed_s, created_at) values (?, ?, ?, 0, ?, ?, ?, ?, 1, ?, 0.5, 0.25, ?, ?)",
                (
                    *(key, at, task_key, f'"{config}"', "ok" if latency_s else "run_error"),
                    *(None if latency_s else f"line\n{at}", latency_s, latency_s and flop / latency_s / 1e9),
                    *(0.5 * at, f"{number} {at}"),
                ),
            )
        for at, (config, latency_s, after_trials, rank) in enumerate(confirmations):
            connection.execute(
                "insert into confirmation (run_key, number, after_trials, rank, config, status, latency_s, repeats, "
                "build_s, run_s, created_at) values (?, ?, ?, ?, ?, ?, ?, 1, 0, 0, '')",
                (key, at, after_trials, rank, f'"{config}"', "ok" if latency_s else "run_error", latency_s),
            )


def read(connection: sqlite3.Connection, view: str, where: str = "") -> list[tuple[Any, ...]]:
    return sorted(connection.execute(f"select * from {view} {where}").fetchall(), key=repr)


@given(runs=RUNS)
def test_views_have_the_rows_of_their_slow_versions(db: sqlite3.Connection, runs: list[Any]) -> None:
    fill(db, runs)
    for view in VIEWS:
        for where in ("", "where task_key = 'task1'", "where label = 'label0'", "where preset = 'x'"):
            assert read(db, view, where) == read(db, f"slow_{view}", where), (view, where)


@pytest.mark.parametrize("condition", ["task_key = 'task2'", "label = 'label1'"])
@pytest.mark.parametrize("view", VIEWS)
def test_the_rows_of_one_task_are_found_without_reading_the_trials_of_others(
    db: sqlite3.Connection, view: str, condition: str
) -> None:
    """Count SQLite's steps, which are deterministic, unlike time."""
    steps = []
    for n_trials in (10, 300):
        others = [(0, "x", [(str(at), 1e-3) for at in range(n_trials)], []) for _ in range(5)]
        fill(db, [*others, (2, "x", [("a", 2e-3), ("b", 1e-3)], [("a", 2e-3, 2, 0)])])
        steps.append(0)
        db.set_progress_handler(lambda: steps.append(steps.pop() + 1), 1)
        assert read(db, view, f"where {condition}")
        db.set_progress_handler(None, 1)
    assert steps[1] <= steps[0] + 10
