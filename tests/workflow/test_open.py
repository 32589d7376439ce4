"""A network for a target with an open space is tuned, confirmed, compiled and evaluated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from anole.documents.build import read_build
from anole.documents.evaluation import read_evaluation
from anole.space import ALGORITHM
from anole.targets import get_target

from .conftest import write_onnx

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

TUNED, UNTUNED = "chain-open-anole", "untuned"


@pytest.fixture(scope="module")
def built(empty_project: Callable[[str], Any]) -> Any:
    project = empty_project("open")
    write_onnx(project.folder / "chain.onnx", [16, 32], size=7)
    project.write(
        {"chain": {"source": "onnx:chain.onnx"}},
        targets={"open": {"kind": "cpu", "threads": 1, "space": "open"}},
        tuning={"preset": "anole", "trials": 6, "batch": 3, "n_confirm": 2},
        builds=[
            {"model": "chain", "target": "open"},
            {"model": "chain", "target": "open", "trials": 0, "name": UNTUNED},
        ],
    )
    outcome = project.complete()
    return project, outcome


def test_every_stage_ran_on_open_configs(built: Any) -> None:
    project, outcome = built
    assert [len(outcome.jobs[rule]) for rule in ("extract", "tune", "compile", "evaluate", "merge")] == [1, 2, 2, 2, 1]
    for content in project.shards().values():
        assert content.task.target["space"] == "open" and len(content.trials) == 6
        assert all(trial.measurement.latency_s or trial.measurement.error for trial in content.trials)
        assert content.confirmations


@pytest.mark.parametrize(("name", "matched"), [(TUNED, "tuned"), (UNTUNED, "default")])
def test_builds_are_correct_and_have_open_configs(built: Any, name: str, matched: str) -> None:
    project, _ = built
    tasks = {content.task.key: content.task for content in project.shards().values()}
    build = read_build(project.folder / f"builds/{name}")
    assert {task.key for task in build.tasks} == set(tasks)
    for built_task in build.tasks:
        task = tasks[built_task.key]
        assert built_task.matched == matched and ALGORITHM not in built_task.config
        assert get_target(task.target).space(task.workload).rejection(built_task.config) is None
    evaluation = read_evaluation(project.folder / f"work/evaluations/{name}.json")
    assert evaluation.latencies and all(each.relative_error < 1e-4 for each in evaluation.latencies)
