from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anole.documents import layout
from anole.documents.described import write_described
from anole.documents.lockfile import LockedBuild, LockedTask, Lockfile, read_lockfile, write_lockfile
from anole.documents.manifest import ListedTask
from anole.documents.receipt import Receipt, Refined, TriedConfig, write_receipt
from anole.project.hardware import describe_this_machine, hardware_request
from anole.project.pipeline import Pipeline
from anole.project.plan import Plan, PlannedStep, make_plan
from anole.record import Config, Confirmation, Measurement, Run, Status, Trial, utc_now
from anole.report.tables import render_plan
from anole.store.shard import Shard
from anole.targets import get_target
from anole.task import Conv2d, Dense, Task, Workload

from ..record_project import Project
from ..terminal import rendered
from .manifests import leave_manifest, load

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
    return lambda: make_plan(load(project))


@pytest.fixture
def pipeline(project: Path) -> Pipeline:
    return load(project)


def write_extracted(pipeline: Pipeline, model: str, *weighted: tuple[Workload, int], target: str = "cpu") -> list[Task]:
    """Write a manifest and tasks like the extract stage."""
    tasks = [Task(workload, pipeline.descriptions[target], 1) for workload, _ in weighted]
    listed = [
        ListedTask(task.key, task.label, task.workload.flop, weight, ("layer",))
        for task, (_, weight) in zip(tasks, weighted, strict=True)
    ]
    leave_manifest(pipeline, model, target, listed)
    return tasks


def write_measured(
    pipeline: Pipeline,
    task: Task,
    latencies_ms: Sequence[float | None],
    confirmed_ms: Mapping[int, float] | None = None,
    configs: Sequence[Config] = (),
    build: str = "one-cpu-random",
) -> Run:
    """Write a shard like the tune stage: trials, by default of tiles 0, 1, ..., then confirmations, best first.

    Trials without a latency failed.
    """
    run = pipeline.run(pipeline.spec.builds[build], task.key)
    with Shard.open(pipeline.project / layout.SHARDS, run, task) as shard:
        for number, latency_ms in enumerate(latencies_ms):
            config = configs[number] if configs else {"tile": number}
            gflops = None if latency_ms is None else task.workload.flop / latency_ms / 1e6
            shard.append_trial(Trial(number, 0, config, timing(latency_ms, 0.05, 3), 1.0 + number, gflops, utc_now()))
        for rank, (tile, latency_ms) in enumerate((confirmed_ms or {}).items()):
            confirmed = timing(latency_ms, 0.02, 100)
            shard.append_confirmation(Confirmation({"tile": tile}, confirmed, len(latencies_ms), rank, utc_now()))
    return run


def timing(latency_ms: float | None, cv: float, repeats: int) -> Measurement:
    if latency_ms is None:
        return Measurement(Status.RUN_ERROR)
    return Measurement(Status.OK, latency_s=latency_ms / 1e3, cv=cv, repeats=repeats)


def write_finished(pipeline: Pipeline, *builds: str) -> None:
    """Write all output files of builds."""
    for build in builds:
        paths = [*pipeline.receipts(pipeline.spec.builds[build]), layout.build_path(build) / "build.json"]
        for path in (*paths, layout.evaluation_path(build), layout.DATABASE, layout.MERGED):
            (pipeline.project / path).parent.mkdir(parents=True, exist_ok=True)
            (pipeline.project / path).write_text("{}")


def steps(plan: Plan) -> list[tuple[str, str]]:
    return [(step.stage, step.subject) for step in plan.steps]


def test_no_tasks_are_known_before_extraction(plan: Callable[[], Plan]) -> None:
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


def test_a_shared_task_is_listed_once_with_all_its_models(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    write_extracted(pipeline, "one", (SHARED, 3))
    write_extracted(pipeline, "two", (SHARED, 1), (ONLY_TWO, 2))
    shared, dense = plan().tasks
    assert (shared.used_by, dense.used_by) == ({"one": 3, "two": 1}, {"two": 2})
    assert (shared.measured, shared.budget.trials, shared.best_gflops, shared.tuned) == (0, 3, None, False)
    assert steps(plan())[:2] == [("tune", SHARED.label), ("tune", ONLY_TWO.label)]


@pytest.mark.parametrize(("latencies_ms", "best_ms", "left"), [([2.0, None], 2.0, 1), ([3.0, 2.0, 1.5, 1.0], 1.5, 0)])
def test_measured_trials_within_the_budget_are_counted(
    pipeline: Pipeline, plan: Callable[[], Plan], latencies_ms: list[float | None], best_ms: float, left: int
) -> None:
    (task,) = write_extracted(pipeline, "one", (SHARED, 3))
    write_measured(pipeline, task, latencies_ms)
    (planned,) = plan().tasks
    assert (planned.measured, planned.failures) == (3 - left, latencies_ms.count(None))
    assert planned.best_gflops == task.workload.flop / best_ms / 1e6
    tunes = [step.reason for step in plan().steps if step.stage == "tune"]
    assert tunes == [f"{left} of 3 trials with random"]


@pytest.mark.parametrize("seconds", [3, 2])
def test_recorded_time_counts_towards_a_budget_of_seconds(
    project: Path, plan: Callable[[], Plan], seconds: int
) -> None:
    pipeline = load(project, MODELS.replace("trials: 3", f"total_seconds: {seconds}"))
    (task,) = write_extracted(pipeline, "one", (SHARED, 3))
    write_measured(pipeline, task, [2.0, None])
    (planned,) = plan().tasks
    assert planned.spent == f"2 in {seconds} s shared"
    assert [step.reason for step in plan().steps if step.stage == "tune"] == [f"{seconds} s of trials with random"]
    assert pipeline.unmeasured(pipeline.spec.builds["one-cpu-random"]) == [task.label][seconds == 2 :]


def test_a_finished_project_has_no_steps(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    write_extracted(pipeline, "one", (SHARED, 3))
    write_extracted(pipeline, "two", (SHARED, 1))
    write_finished(pipeline, "one-cpu-random", "two-cpu-random")
    assert plan().steps == ()
    assert all(task.tuned for task in plan().tasks)
    for path in (layout.DATABASE, layout.MERGED):
        (pipeline.project / path).unlink()
        assert plan().steps == (PlannedStep("merge", "db/tuning.sqlite", "missing"),)
        (pipeline.project / path).write_text("{}")


def test_a_missing_receipt_compiles_only_the_builds_that_need_it(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    write_extracted(pipeline, "one", (SHARED, 3))
    _, dense = write_extracted(pipeline, "two", (SHARED, 1), (ONLY_TWO, 2))
    write_finished(pipeline, "one-cpu-random", "two-cpu-random")
    run = pipeline.run(pipeline.spec.builds["two-cpu-random"], dense.key)
    (pipeline.project / layout.receipt_path(dense.key, run.key, 3)).unlink()
    assert steps(plan()) == [
        ("tune", ONLY_TWO.label),
        ("compile", "two-cpu-random"),
        ("evaluate", "two-cpu-random"),
        ("merge", "db/tuning.sqlite"),
    ]


def test_a_build_is_refined_before_it_is_compiled(project: Path, plan: Callable[[], Plan]) -> None:
    pipeline = load(project, MODELS.replace("trials: 3", "trials: 3, refine: 2"))
    write_extracted(pipeline, "one", (SHARED, 3))
    write_extracted(pipeline, "two", (SHARED, 1))
    write_finished(pipeline, "one-cpu-random", "two-cpu-random")
    refined = pipeline.project / layout.refined_path("one-cpu-random")
    refined.parent.mkdir()
    refined.write_text("{}")
    assert [(step.stage, step.subject, step.reason) for step in plan().steps] == [
        ("refine", "two-cpu-random", "new"),
        ("compile", "two-cpu-random", "refined again"),
        ("evaluate", "two-cpu-random", "compiled again"),
        ("merge", "db/tuning.sqlite", "new results"),
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda project: os.utime(project / "nets.py", ns=(2**62, 2**62)), "nets.py changed"),
        (lambda project: load(project, MODELS.replace("8, 8]", "9, 9]")), "is stale: entry changed"),
    ],
    ids=["factory", "entry"],
)
def test_changed_models_are_extracted_again(
    pipeline: Pipeline, plan: Callable[[], Plan], change: Callable[[Path], object], reason: str
) -> None:
    write_extracted(pipeline, "one", (SHARED, 3))
    write_finished(pipeline, "one-cpu-random")
    change(pipeline.project)
    assert plan().steps[0] == PlannedStep("extract", "one for cpu", reason)


def test_an_undescribed_target_is_described_first(project: Path, plan: Callable[[], Plan]) -> None:
    entry = "cpu: {kind: cpu, threads: 1, nodes: {partition: amd}}"
    pipeline = load(project, MODELS.replace("cpu: {kind: cpu, threads: 1}", entry))
    first, second, *_ = plan().steps
    assert (first.stage, first.subject, first.reason) == ("describe", "cpu", "no node has described it yet")
    assert (second.stage, second.subject, second.reason) == ("extract", "one for cpu", "new")
    described = describe_this_machine(hardware_request(pipeline.spec.targets["cpu"]))
    write_described(project / layout.described_path("cpu"), described)
    write_extracted(load(project), "one", (SHARED, 3))
    assert steps(plan())[:2] == [("extract", "two for cpu"), ("tune", SHARED.label)]
    (project / "models.yaml").write_text(MODELS.replace("cpu: {kind: cpu, threads: 1}", entry.replace("amd", "zen")))
    assert [(step.stage, step.reason) for step in plan().steps][:2] == [
        ("describe", "no node has described it yet"),
        ("extract", "cpu is described again"),
    ]
    assert plan().tasks == ()


def format_plan(plan: Plan, width: int = 120) -> list[str]:
    """Return the lines of a plan on a terminal."""
    return [line.rstrip() for line in rendered(render_plan(plan), width).splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_shows_tasks_and_steps(pipeline: Pipeline, plan: Callable[[], Plan], width: int) -> None:
    task, _ = write_extracted(pipeline, "one", (SHARED, 3), (ONLY_TWO, 1))
    write_measured(pipeline, task, [task.workload.flop / 12.34e6, None])
    header, *lines = (re.split(r"\s{2,}", line.strip()) for line in format_plan(plan(), width))
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


def test_presets_have_a_column_and_long_lists_are_shortened(project: Path) -> None:
    pipeline = load(project, MODELS + "  - {model: one, target: cpu, preset: anole, trials: 0}\n")
    layers = [Dense(1, 256, size) for size in range(8, 13)]
    write_extracted(pipeline, "one", *((layer, 1) for layer in layers))
    lines = format_plan(make_plan(pipeline))
    assert re.split(r"\s{2,}", lines[0]) == ["task", "preset", "layers", "MFLOP", "trials"]
    assert "10 tasks: 5 to tune, 5 with the default config (no trials)." in lines
    steps = [re.split(r"\s{2,}", line.strip()) for line in lines if line.startswith("  tune")]
    assert steps == [["tune", "dense 256->8 and 4 more", "3 of 3 trials with random"]]


def lock(pipeline: Pipeline, build: str, tasks: Iterable[tuple[Task, int, float | None]]) -> None:
    """Lock tasks to a tile and its latency in ms."""
    locked = {
        task.key: LockedTask(task.label, {"tile": tile}, None if latency_ms is None else latency_ms / 1e3, None)
        for task, tile, latency_ms in tasks
    }
    lockfile = read_lockfile(pipeline.project / layout.LOCKFILE)
    entry = LockedBuild(pipeline.descriptions["cpu"], locked)
    write_lockfile(replace(lockfile, builds={**lockfile.builds, build: entry}))


def test_a_build_with_another_lock_is_compiled_again(project: Path, plan: Callable[[], Plan]) -> None:
    pipeline = load(project, MODELS.replace("one, target: cpu", "one, target: cpu, name: one-cpu"))
    (task,) = write_extracted(pipeline, "one", (SHARED, 3))
    write_finished(pipeline, "one-cpu")
    Project(project).compile("one", [(task, 3, None)])
    assert "one-cpu" not in [step.subject for step in plan().steps]
    lock(pipeline, "one-cpu", [(task, 0, 1.0)])
    assert PlannedStep("compile", "one-cpu", "its lock changed") in plan().steps


def list_outdated(plan: Plan) -> list[tuple[str, str, str]]:
    return [(each.build, each.subject, each.problem) for each in plan.behind]


def test_what_is_locked_is_not_tuned(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    task, dense = write_extracted(pipeline, "one", (SHARED, 3), (ONLY_TWO, 1))
    write_extracted(pipeline, "two", (SHARED, 1), (ONLY_TWO, 1))
    lock(pipeline, "one-cpu-random", [(task, 0, 1.0), (dense, 0, 1.0)])
    assert [each.locked for each in plan().tasks] == [False, False]
    lock(pipeline, "two-cpu-random", [(task, 0, 1.0)])
    assert [(each.locked, each.spent) for each in plan().tasks] == [(True, "locked"), (False, "0/3")]
    assert steps(plan())[0] == ("tune", ONLY_TWO.label)
    assert list_outdated(plan()) == [("two-cpu-random", ONLY_TWO.label, "is not locked; the records choose its config")]


@pytest.mark.parametrize(
    ("tile", "locked_ms", "confirmed_ms", "problem"),
    [
        (0, 1.0, {0: 1.0, 1: 1.3}, None),
        (1, 1.3, {0: 1.0, 1: 1.3}, "takes 1.3 ms, but a recorded config takes 1 ms"),
        (1, 1.0, {0: 1.0, 1: 1.003}, None),
        (1, 1.5, {0: 1.003, 1: 1.0}, None),
        (2, 3.0, {0: 1.0, 1: 1.003}, "takes 3 ms, but a recorded config takes 1 ms"),
        (9, 1.003, {0: 1.0}, None),
        (9, 1.1, {0: 1.0}, "takes 1.1 ms, but a recorded config takes 1 ms"),
        (9, None, {0: 1.0}, None),
        (0, 1.0, {}, None),
        (2, 1.0, {}, "takes 3 ms, but a recorded config takes 1 ms"),
    ],
)
def test_a_lock_is_outdated_if_a_config_is_significantly_faster(
    pipeline: Pipeline, plan: Callable[[], Plan], tile: int, locked_ms: float, confirmed_ms: Any, problem: str | None
) -> None:
    (task,) = write_extracted(pipeline, "one", (SHARED, 3))
    write_measured(pipeline, task, [1.0, 1.05, 3.0], confirmed_ms)
    lock(pipeline, "one-cpu-random", [(task, tile, locked_ms)])
    assert list_outdated(plan()) == ([] if problem is None else [("one-cpu-random", SHARED.label, problem)])


def test_configs_tried_by_refining_are_not_better(project: Path, plan: Callable[[], Plan]) -> None:
    pipeline = load(project, MODELS.replace("trials: 3", "trials: 3, refine: 2"))
    (task,) = write_extracted(pipeline, "one", (SHARED, 3))
    write_measured(pipeline, task, [1.0, 1.5, 3.0])
    lock(pipeline, "one-cpu-random", [(task, 1, 1.5)])
    assert list_outdated(plan()) == [], "it is unknown which configs were tried"
    for tried, n_outdated in ((0, 0), (2, 1)):
        each = TriedConfig({"tile": tried}, 1e-3, 1e-3, chosen=False)
        receipt = Receipt(task.key, "c" * 64, 3, {"tile": 1}, 1.5e-3, refined=(each,))
        refined = Refined("one-cpu-random", utc_now(), None, None, None, kept=True, receipts=(receipt,))
        write_receipt(project / layout.refined_path("one-cpu-random"), refined)
        assert len(list_outdated(plan())) == n_outdated


def test_locks_without_a_task_or_build_are_reported(pipeline: Pipeline, plan: Callable[[], Plan]) -> None:
    (task,) = write_extracted(pipeline, "one", (SHARED, 3))
    gone = Task(ONLY_TWO, pipeline.descriptions["cpu"], 1)
    lock(pipeline, "one-cpu-random", [(task, 0, 1.0), (gone, 0, 1.0)])
    lock(pipeline, "renamed", [(task, 0, 1.0)])
    lock(pipeline, "two-cpu-random", [(task, 0, 1.0)])
    assert list_outdated(plan()) == [
        ("renamed", "renamed", f"{pipeline.spec.file} has no such build"),
        ("one-cpu-random", ONLY_TWO.label, "is locked, but the model has no such task"),
    ], "the tasks of a model are unknown before extraction"
    lines = format_plan(plan())
    assert lines[lines.index("The lock file is outdated:") + 1].startswith("  renamed")
    assert any("anole lock --remove BUILD" in line for line in lines)


def test_the_tasks_of_a_simulated_accelerator_are_compared_on_their_hardware(project: Path) -> None:
    pipeline = load(
        project,
        MODELS.replace("cpu: {kind: cpu, threads: 1}", "npu: {kind: vta, hardware: search}").replace("cpu}", "npu}"),
    )
    description = pipeline.descriptions["npu"]
    (task,) = write_extracted(pipeline, "one", (Conv2d(1, 8, 8, 32, 32, (1, 1)), 1), target="npu")
    config = get_target(description).default_config(task.workload)
    others = [{**config, "tile_h": 1}, {**config, "tile_co": 32}]
    build = "one-npu-random"
    write_measured(pipeline, task, [2.0, 4.0, 1.0], configs=[config, *others], build=build)
    for locked, n_outdated in ((config, 0), (others[0], 1), (others[1], 0)):
        entry = LockedBuild(description, {task.key: LockedTask(task.label, locked, 1e-3, None)})
        write_lockfile(Lockfile(project / layout.LOCKFILE, {build: entry}))
        assert len(make_plan(load(project)).behind) == n_outdated


def test_a_model_for_an_int8_target_is_quantized_before_extraction(project: Path, plan: Callable[[], Plan]) -> None:
    text = MODELS.replace("cpu: {kind: cpu, threads: 1}", "cpu: {kind: cpu, threads: 1, precision: int8}")
    (project / "models.yaml").write_text(text)
    assert plan().steps[:2] == (PlannedStep("quantize", "one", "new"), PlannedStep("quantize", "two", "new"))
    pipeline = load(project)
    for model in ("one", "two"):
        (project / layout.quantized_path(model)).parent.mkdir(parents=True, exist_ok=True)
        (project / layout.quantized_path(model)).write_bytes(b"")
        write_extracted(pipeline, model, (SHARED, 1))
    assert {step.stage for step in plan().steps} == {"tune", "compile", "evaluate", "merge"}
    os.utime(project / "nets.py", ns=(2**62, 2**62))
    assert plan().steps[:2] == (
        PlannedStep("quantize", "one", "nets.py changed"),
        PlannedStep("extract", "one for cpu", "it is quantized again"),
    )
