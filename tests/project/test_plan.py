from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from anole.documents import layout
from anole.documents.manifest import ListedTask, Manifest, write_manifest
from anole.documents.task import write_task
from anole.errors import StoreError
from anole.project.pipeline import Pipeline
from anole.project.plan import Plan, make_plan
from anole.record import Measurement, Run, Status, Trial, utc_now
from anole.report.plan_table import render_plan
from anole.store.shard import Shard, shard_path
from anole.task import Conv2d, Dense, Task

MODELS = """
models:
  one: {source: "torch:nets:one", inputs: {x: [1, 3, 8, 8]}}
  two: {source: "torchvision:alexnet", inputs: {x: [1, 3, 64, 64]}}
targets:
  cpu: {kind: cpu, threads: 1}
tuning: {preset: random, trials: 3}
builds:
  - {model: one, target: cpu}
  - {model: two, target: cpu}
"""
SHARED = Conv2d(1, 8, 8, 16, 16, (3, 3))
ONLY_TWO = Dense(1, 256, 1000)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "models.yaml").write_text(MODELS)
    (tmp_path / "nets.py").write_text("def one(): ...\n")
    return tmp_path


@pytest.fixture
def plan(project: Path) -> Callable[[], Plan]:
    return lambda: make_plan(Pipeline.load(project / "models.yaml"))


@pytest.fixture
def pipeline(project: Path) -> Pipeline:
    return Pipeline.load(project / "models.yaml")


def extracted(pipeline: Pipeline, model: str, *weighted: tuple[Conv2d | Dense, int]) -> list[Task]:
    """Leaves a manifest and tasks as extracting would."""
    tasks = [Task(workload, pipeline.descriptions["cpu"], 1) for workload, _ in weighted]
    listed = tuple(
        ListedTask(task.key, task.label, task.workload.flop, weight, ("layer",))
        for task, (_, weight) in zip(tasks, weighted, strict=True)
    )
    source, origin = pipeline.spec.models[model].source, pipeline.origin(model, "cpu")
    manifest = Manifest(model, "cpu", source, {}, origin, listed, sum(each.flop * each.weight for each in listed))
    write_manifest(pipeline.project / layout.manifest_path(model, "cpu"), manifest)
    for task in tasks:
        write_task(pipeline.project / layout.task_path(task.key), task)
    return tasks


def measured(pipeline: Pipeline, task: Task, *gflops: float | None) -> Run:
    """Leaves a shard as tuning would; None is a candidate that failed."""
    run = pipeline.run(pipeline.spec.builds["one-cpu-random"], task.key)
    with Shard.open(pipeline.project / layout.SHARDS, run, task) as shard:
        for number, speed in enumerate(gflops):
            latency_s = None if speed is None else task.workload.flop / speed / 1e9
            measurement = Measurement(Status.OK if speed else Status.RUN_ERROR, latency_s=latency_s)
            shard.append_trial(Trial(number, 0, {"tile": number}, measurement, 1.0, speed, utc_now()))
    return run


def finished(pipeline: Pipeline, build: str) -> None:
    """Leaves everything that a build leaves."""
    paths = [*pipeline.receipts(pipeline.spec.builds[build]), layout.build_path(build) / "build.json"]
    for path in (*paths, layout.evaluation_path(build), layout.DATABASE, layout.MERGED):
        (pipeline.project / path).parent.mkdir(parents=True, exist_ok=True)
        (pipeline.project / path).write_text("{}")


def steps(plan: Plan) -> list[tuple[str, str]]:
    return [(step.stage, step.subject) for step in plan.steps]


def test_nothing_is_known_before_extraction(plan: Callable[[], Plan]) -> None:
    made = plan()
    assert made.tasks == ()
    assert steps(made) == [
        ("extract", "one for cpu"),
        ("extract", "two for cpu"),
        ("compile", "one-cpu-random"),
        ("evaluate", "one-cpu-random"),
        ("compile", "two-cpu-random"),
        ("evaluate", "two-cpu-random"),
        ("merge", "db/tuning.sqlite"),
    ]


def test_a_task_is_listed_once_with_all_who_use_it(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    extracted(pipeline, "one", (SHARED, 3))
    extracted(pipeline, "two", (SHARED, 1), (ONLY_TWO, 2))
    shared, dense = plan().tasks
    assert (shared.used_by, dense.used_by) == ({"one": 3, "two": 1}, {"two": 2})
    assert (shared.measured, shared.trials, shared.best_gflops, shared.tuned) == (0, 3, None, False)
    assert steps(plan())[:2] == [("tune", SHARED.label), ("tune", ONLY_TWO.label)]


def test_what_a_run_has_measured_is_counted(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    (task,) = extracted(pipeline, "one", (SHARED, 3))
    measured(pipeline, task, 10.0, None)
    (planned,) = plan().tasks
    assert (planned.measured, planned.failures, planned.best_gflops) == (2, 1, 10.0)
    assert [step.reason for step in plan().steps if step.stage == "tune"] == ["1 of 3 trials with random"]


def test_trials_beyond_the_budget_do_not_count(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    (task,) = extracted(pipeline, "one", (SHARED, 3))
    measured(pipeline, task, 10.0, 20.0, 30.0, 40.0)
    (planned,) = plan().tasks
    assert (planned.measured, planned.best_gflops) == (3, 30.0)


def test_when_all_is_there_nothing_is_to_do(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    extracted(pipeline, "one", (SHARED, 3))
    extracted(pipeline, "two", (SHARED, 1))
    finished(pipeline, "one-cpu-random")
    finished(pipeline, "two-cpu-random")
    assert plan().steps == ()
    assert all(task.tuned for task in plan().tasks)
    for path in (layout.DATABASE, layout.MERGED):
        (pipeline.project / path).unlink()
        assert steps(plan()) == [("merge", "db/tuning.sqlite")]
        (pipeline.project / path).write_text("{}")


def test_a_missing_receipt_compiles_only_the_builds_that_need_it(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    extracted(pipeline, "one", (SHARED, 3))
    _, dense = extracted(pipeline, "two", (SHARED, 1), (ONLY_TWO, 2))
    finished(pipeline, "one-cpu-random")
    finished(pipeline, "two-cpu-random")
    run = pipeline.run(pipeline.spec.builds["two-cpu-random"], dense.key)
    (pipeline.project / layout.receipt_path(dense.key, run.key, 3)).unlink()
    assert steps(plan()) == [
        ("tune", ONLY_TWO.label),
        ("compile", "two-cpu-random"),
        ("evaluate", "two-cpu-random"),
        ("merge", "db/tuning.sqlite"),
    ]


def test_a_build_is_refined_before_it_is_compiled(project: Path, plan: Callable[[], Plan]) -> None:
    (project / "models.yaml").write_text(MODELS.replace("trials: 3", "trials: 3, refine: 2"))
    pipeline = Pipeline.load(project / "models.yaml")
    extracted(pipeline, "one", (SHARED, 3))
    extracted(pipeline, "two", (SHARED, 1))
    finished(pipeline, "one-cpu-random")
    finished(pipeline, "two-cpu-random")
    refined = pipeline.project / layout.refined_path("one-cpu-random")
    refined.parent.mkdir()
    refined.write_text("{}")
    assert [(step.stage, step.subject, step.reason) for step in plan().steps] == [
        ("refine", "two-cpu-random", "new"),
        ("compile", "two-cpu-random", "refined again"),
        ("evaluate", "two-cpu-random", "compiled again"),
        ("merge", "db/tuning.sqlite", "new results"),
    ]


def test_an_edited_factory_is_extracted_again(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    extracted(pipeline, "one", (SHARED, 3))
    finished(pipeline, "one-cpu-random")
    os.utime(pipeline.project / "nets.py", ns=(2**62, 2**62))
    first = plan().steps[0]
    assert (first.stage, first.subject, first.reason) == ("extract", "one for cpu", "nets.py changed")


def test_another_entry_is_extracted_again(project: Path, pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    extracted(pipeline, "one", (SHARED, 3))
    (project / "models.yaml").write_text(MODELS.replace("8, 8]", "9, 9]"))
    first = plan().steps[0]
    assert (first.stage, first.reason) == ("extract", "is of another entry than models.yaml")


def test_a_corrupt_shard_is_named(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    (task,) = extracted(pipeline, "one", (SHARED, 3))
    run = measured(pipeline, task, 10.0)
    shard = shard_path(pipeline.project / layout.SHARDS, run)
    shard.write_text("nonsense\n" + shard.read_text())
    with pytest.raises(StoreError, match=shard.name):
        plan()


def test_the_plain_form_is_json(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    extracted(pipeline, "one", (SHARED, 3))
    plain = json.loads(json.dumps(plan().to_json()))
    assert plain["tasks"][0]["label"] == SHARED.label
    assert plain["tasks"][0]["receipt"].endswith("/3.json")
    assert plain["steps"][-1] == {"stage": "merge", "subject": "db/tuning.sqlite", "reason": "new results"}


def test_the_table_tells_tasks_and_steps(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    (task,) = extracted(pipeline, "one", (SHARED, 3))
    measured(pipeline, task, 12.34, None)
    console = Console(width=120, record=True, file=open(os.devnull, "w"))
    console.print(render_plan(plan()))
    text = console.export_text()
    assert any(
        SHARED.label in line and "one x3" in line and "2/3" in line and "12.3" in line for line in text.splitlines()
    )
    assert "Next:" in text
    assert "extract" in text
