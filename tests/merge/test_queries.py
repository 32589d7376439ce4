from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from anole.task import Task

QUERIES = sorted((Path(__file__).parents[2] / "db" / "queries").glob("*.sql"))


@pytest.fixture(scope="module")
def database(new_project: Callable) -> Path:
    project = new_project()
    project.fill()
    for seed, (processor, elsewhere) in enumerate(
        [("EPYC", {}), ("Xeon", {}), ("Xeon", {"measured_at": {"rpc": "b"}})]
    ):
        task = Task(project.OTHER.workload, {**project.OTHER.target, "model": "EPYC"}, 1)
        run = replace(project.run_of(task, seed=seed), host={"name": "old", "processor": processor, **elsewhere})
        project.tune(run, task, [1e-3, None])
    project.merge()
    return project.database


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_query_answers_with_its_parameters_unset(path: Path, database: Path) -> None:
    sql = path.read_text()
    parameters = dict.fromkeys(re.findall(r"(?<!-):(\w+)", re.sub(r"--.*", "", sql)))
    rows = sqlite3.connect(database).execute(sql, parameters).fetchall()
    assert rows
    assert re.match(r"-- .*\?\n", sql), "the first line is the question"


def test_isolation_and_the_network_may_disagree(database: Path) -> None:
    (path,) = [path for path in QUERIES if path.stem == "isolation_and_network"]
    (row,) = sqlite3.connect(database).execute(path.read_text()).fetchall()
    assert row[:5] == ("resnet18-cpu", "conv2d 64->64 k3x3 s1 56x56", 1.05, 1.158, 1)


def test_runs_on_another_processor_than_their_targets_are_found(database: Path) -> None:
    (path,) = [path for path in QUERIES if path.stem == "wrong_machine"]
    (row,) = sqlite3.connect(database).execute(path.read_text()).fetchall()
    assert row[:6] == ("dense 256->10", "EPYC", "Xeon", "old", "autotvm", 2)
