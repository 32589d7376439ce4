from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from anole.documents import layout
from anole.documents.described import write_described
from anole.documents.lockfile import LockedBuild, LockedTask, Lockfile, read_lockfile, write_lockfile
from anole.documents.manifest import ListedTask, Manifest, write_manifest
from anole.documents.receipt import Receipt, Refined, TriedConfig, write_receipt
from anole.documents.task import write_task
from anole.errors import StoreError
from anole.plain import to_plain
from anole.project.hardware import asked_of, describe_here
from anole.project.pipeline import Pipeline
from anole.project.plan import Plan, make_plan
from anole.record import Confirmation, Measurement, Run, Status, Trial, utc_now
from anole.report.plan_table import render_plan
from anole.store.shard import Shard, shard_path
from anole.targets import get_target
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


def test_a_target_that_no_node_has_described_is_asked_for_first(project: Path, plan: Callable[[], Plan]) -> None:
    entry = "cpu: {kind: cpu, threads: 1, nodes: {partition: amd}}"
    (project / "models.yaml").write_text(MODELS.replace("cpu: {kind: cpu, threads: 1}", entry))
    pipeline = Pipeline.load(project / "models.yaml")
    first, second, *_ = plan().steps
    assert (first.stage, first.subject, first.reason) == ("describe", "cpu", "no node has described it yet")
    assert (second.stage, second.subject, second.reason) == ("extract", "one for cpu", "new")
    described = describe_here(asked_of(pipeline.spec.targets["cpu"]))
    write_described(project / layout.described_path("cpu"), described)
    extracted(Pipeline.load(project / "models.yaml"), "one", (SHARED, 3))
    assert steps(plan())[:2] == [("extract", "two for cpu"), ("tune", SHARED.label)]
    (project / "models.yaml").write_text(MODELS.replace("cpu: {kind: cpu, threads: 1}", entry.replace("amd", "zen")))
    assert [(step.stage, step.reason) for step in plan().steps][:2] == [
        ("describe", "no node has described it yet"),
        ("extract", "cpu is described anew"),
    ]
    assert plan().tasks == ()


def test_a_corrupt_shard_is_named(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    (task,) = extracted(pipeline, "one", (SHARED, 3))
    run = measured(pipeline, task, 10.0)
    shard = shard_path(pipeline.project / layout.SHARDS, run)
    shard.write_text("nonsense\n" + shard.read_text())
    with pytest.raises(StoreError, match=shard.name):
        plan()


def test_the_plain_form_is_json(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    extracted(pipeline, "one", (SHARED, 3))
    plain = json.loads(json.dumps(to_plain(plan())))
    assert plain["tasks"][0]["label"] == SHARED.label
    assert plain["tasks"][0]["receipt"].endswith("/3.json")
    assert plain["steps"][-1] == {"stage": "merge", "subject": "db/tuning.sqlite", "reason": "new results"}


def shown(plan: Plan, width: int = 120) -> list[str]:
    """Returns the lines of a plan on a terminal."""
    console = Console(width=width, record=True, file=open(os.devnull, "w"))
    console.print(render_plan(plan))
    return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_tells_tasks_and_steps(pipeline: Pipeline, plan: Callable[[], Plan], width: int) -> None:
    task, _ = extracted(pipeline, "one", (SHARED, 3), (ONLY_TWO, 1))
    measured(pipeline, task, 12.34, None)
    header, *lines = (re.split(r"\s{2,}", line.strip()) for line in shown(plan(), width))
    assert header == ["task", "layers", "MFLOP", "trials", "failed", "GFLOP/s"]
    assert lines == [
        [SHARED.label, "layer of one", "0.166", "2/3", "1", "12.3"],
        [ONLY_TWO.label, "layer of one", "0.512", "0/3"],
        [""],
        ["2 tasks: 2 to tune."],
        ["Next, by `snakemake --cores all`:"],
        ["extract", "two for cpu", "new"],
        ["tune", SHARED.label, "1 of 3 trials with random"],
        ["tune", ONLY_TWO.label, "3 of 3 trials with random"],
        ["compile", "one-cpu-random, two-cpu-random", "new"],
        ["evaluate", "one-cpu-random, two-cpu-random", "new"],
        ["merge", "db/tuning.sqlite", "new results"],
    ]


def test_presets_are_told_apart_and_long_lists_are_cut(project: Path) -> None:
    (project / "models.yaml").write_text(MODELS + "  - {model: one, target: cpu, preset: anole, trials: 0}\n")
    pipeline = Pipeline.load(project / "models.yaml")
    layers = [Dense(1, 256, size) for size in range(8, 13)]
    extracted(pipeline, "one", *((layer, 1) for layer in layers))
    lines = shown(make_plan(pipeline))
    assert re.split(r"\s{2,}", lines[0]) == ["task", "preset", "layers", "MFLOP", "trials"]
    assert "10 tasks: 5 to tune, 5 with the default config (no trials)." in lines
    steps = [re.split(r"\s{2,}", line.strip()) for line in lines if line.startswith("  tune")]
    assert steps == [["tune", "dense 256->8 and 4 more", "3 of 3 trials with random"]]


def lock(pipeline: Pipeline, build: str, tasks: Iterable[tuple[Task, int, float | None]]) -> None:
    """Locks tasks to a tile and its latency in ms."""
    locked = {
        task.key: LockedTask(task.label, {"tile": tile}, None if latency_ms is None else latency_ms / 1e3, None)
        for task, tile, latency_ms in tasks
    }
    lockfile = read_lockfile(pipeline.project / layout.LOCKFILE)
    entry = LockedBuild(pipeline.descriptions["cpu"], locked)
    write_lockfile(replace(lockfile, builds={**lockfile.builds, build: entry}))


def recorded(pipeline: Pipeline, task: Task, latencies_ms: Sequence[float], confirmed_ms: Mapping[int, float]) -> None:
    """Leaves trials of tile 0 and so on, and then confirmations of some tiles, the best first, with 2 % of noise."""
    run = pipeline.run(pipeline.spec.builds["one-cpu-random"], task.key)
    with Shard.open(pipeline.project / layout.SHARDS, run, task) as shard:
        for number, latency_ms in enumerate(latencies_ms):
            speed = task.workload.flop / (latency_ms / 1e3) / 1e9
            measurement = Measurement(Status.OK, latency_s=latency_ms / 1e3, cv=0.05, repeats=3)
            shard.append_trial(Trial(number, 0, {"tile": number}, measurement, 1.0, speed, utc_now()))
        for rank, (tile, latency_ms) in enumerate(confirmed_ms.items()):
            measurement = Measurement(Status.OK, latency_s=latency_ms / 1e3, cv=0.02, repeats=100)
            shard.append_confirmation(Confirmation({"tile": tile}, measurement, len(latencies_ms), rank, utc_now()))


def behind(plan: Plan) -> list[tuple[str, str, str]]:
    return [(each.build, each.subject, each.problem) for each in plan.behind]


def test_what_is_locked_is_not_tuned(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    task, dense = extracted(pipeline, "one", (SHARED, 3), (ONLY_TWO, 1))
    extracted(pipeline, "two", (SHARED, 1), (ONLY_TWO, 1))
    lock(pipeline, "one-cpu-random", [(task, 0, 1.0), (dense, 0, 1.0)])
    assert [each.locked for each in plan().tasks] == [False, False]
    lock(pipeline, "two-cpu-random", [(task, 0, 1.0)])
    assert [(each.locked, each.spent) for each in plan().tasks] == [(True, "locked"), (False, "0/3")]
    assert steps(plan())[0] == ("tune", ONLY_TWO.label)
    assert behind(plan()) == [("two-cpu-random", ONLY_TWO.label, "is not locked: its records decide")]


@pytest.mark.parametrize(
    ("tile", "locked_ms", "confirmed_ms", "problem"),
    [
        (0, 1.0, {0: 1.0, 1: 1.3}, None),
        (1, 1.3, {0: 1.0, 1: 1.3}, "takes 1.3 ms, and a config of its records 1 ms"),
        (1, 1.0, {0: 1.0, 1: 1.003}, None),
        (1, 1.5, {0: 1.003, 1: 1.0}, None),
        (2, 3.0, {0: 1.0, 1: 1.003}, "takes 3 ms, and a config of its records 1 ms"),
        (9, 1.003, {0: 1.0}, None),
        (9, 1.1, {0: 1.0}, "takes 1.1 ms, and a config of its records 1 ms"),
        (9, None, {0: 1.0}, None),
        (0, 1.0, {}, None),
        (2, 1.0, {}, "takes 3 ms, and a config of its records 1 ms"),
    ],
)
def test_a_lock_is_behind_what_is_faster_beyond_chance(
    pipeline: Pipeline, plan: Callable[[], Plan], tile: int, locked_ms: float, confirmed_ms: Any, problem: str | None
) -> None:
    (task,) = extracted(pipeline, "one", (SHARED, 3))
    recorded(pipeline, task, [1.0, 1.05, 3.0], confirmed_ms)
    lock(pipeline, "one-cpu-random", [(task, tile, locked_ms)])
    assert behind(plan()) == ([] if problem is None else [("one-cpu-random", SHARED.label, problem)])


def test_what_refining_tried_is_not_better(project: Path, plan: Callable[[], Plan]) -> None:
    (project / "models.yaml").write_text(MODELS.replace("trials: 3", "trials: 3, refine: 2"))
    pipeline = Pipeline.load(project / "models.yaml")
    (task,) = extracted(pipeline, "one", (SHARED, 3))
    recorded(pipeline, task, [1.0, 1.5, 3.0], {})
    lock(pipeline, "one-cpu-random", [(task, 1, 1.5)])
    assert behind(plan()) == [], "nothing says what was tried"
    for tried, n_behind in ((0, 0), (2, 1)):
        each = TriedConfig({"tile": tried}, 1e-3, 1e-3, chosen=False)
        receipt = Receipt(task.key, "c" * 64, 3, {"tile": 1}, 1.5e-3, refined=(each,))
        refined = Refined("one-cpu-random", utc_now(), None, None, None, kept=True, receipts=(receipt,))
        write_receipt(project / layout.refined_path("one-cpu-random"), refined)
        assert len(behind(plan())) == n_behind


def test_entries_without_a_task_or_build_are_told(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    (task,) = extracted(pipeline, "one", (SHARED, 3))
    gone = Task(ONLY_TWO, pipeline.descriptions["cpu"], 1)
    lock(pipeline, "one-cpu-random", [(task, 0, 1.0), (gone, 0, 1.0)])
    lock(pipeline, "renamed", [(task, 0, 1.0)])
    lock(pipeline, "two-cpu-random", [(task, 0, 1.0)])
    assert behind(plan()) == [
        ("renamed", "renamed", f"{pipeline.spec.file} has no such build"),
        ("one-cpu-random", ONLY_TWO.label, "is locked, but the model has no such task"),
    ], "of a model that is not extracted, nothing is known"
    lines = shown(plan())
    assert lines[lines.index("The lock file is behind:") + 1].startswith("  renamed")
    assert any("anole lock --remove BUILD" in line for line in lines)


def test_the_tasks_of_a_simulated_accelerator_are_compared_on_their_hardware(project: Path) -> None:
    (project / "models.yaml").write_text(
        MODELS.replace("cpu: {kind: cpu, threads: 1}", "npu: {kind: vta, hardware: search}").replace("cpu}", "npu}")
    )
    pipeline = Pipeline.load(project / "models.yaml")
    description = pipeline.descriptions["npu"]
    task = Task(Conv2d(1, 8, 8, 32, 32, (1, 1)), description, 1)
    origin = pipeline.origin("one", "npu")
    listed = (ListedTask(task.key, task.label, task.workload.flop, 1, ("layer",)),)
    source = pipeline.spec.models["one"].source
    write_manifest(project / layout.manifest_path("one", "npu"), Manifest("one", "npu", source, {}, origin, listed, 1))
    write_task(project / layout.task_path(task.key), task)
    target = get_target(description)
    config = target.default_config(task.workload)
    others = [{**config, "tile_h": 1}, {**config, "tile_co": 32}]
    build = pipeline.spec.builds["one-npu-random"]
    with Shard.open(project / layout.SHARDS, pipeline.run(build, task.key), task) as shard:
        for number, (each, latency_s) in enumerate(zip((config, *others), (2e-3, 4e-3, 1e-3), strict=True)):
            speed = task.workload.flop / latency_s / 1e9
            measurement = Measurement(Status.OK, latency_s=latency_s)
            shard.append_trial(Trial(number, 0, each, measurement, 1.0, speed, utc_now()))
    for locked, n_behind in ((config, 0), (others[0], 1), (others[1], 0)):
        entry = LockedBuild(description, {task.key: LockedTask(task.label, locked, 1e-3, None)})
        write_lockfile(Lockfile(project / layout.LOCKFILE, {build.name: entry}))
        assert len(make_plan(Pipeline.load(project / "models.yaml")).behind) == n_behind
