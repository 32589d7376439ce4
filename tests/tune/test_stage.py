"""The tune stage from task file to receipt on the real processor, with few trials of tiny tasks."""

from __future__ import annotations

import json
import logging
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.documents.manifest import ListedTask, Manifest, Origin, write_manifest, write_task
from anole.errors import DocumentError, StoreError, TargetError
from anole.host.processor import processor
from anole.measure.device_access import DeviceAccess
from anole.measure.options import MeasureOptions
from anole.record import Trial
from anole.store.shard import read_shard
from anole.targets import get_target
from anole.targets.cpu.settings import describe_cpu
from anole.task import Conv2d, Dense, Task
from anole.tune.job import TuneOptions
from anole.tune.stage import tune_model, tune_task
from anole_vta.settings import describe_vta
from anole_vta.target import VtaTarget
from anole_vta.templates.design import HARDWARE

from .conftest import RANDOM, Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("tune"))


@pytest.fixture(scope="module")
def two(project: Project) -> dict[str, Any]:
    return project.tune(2)


@pytest.fixture(scope="module")
def shard_of_two(project: Project, two: dict[str, Any]) -> bytes:
    return project.shard.read_bytes()


@pytest.fixture(scope="module")
def four(project: Project, shard_of_two: bytes) -> dict[str, Any]:
    return project.tune(4)


def test_a_receipt_has_the_result(project: Project, two: dict[str, Any]) -> None:
    assert (two["status"], two["trials"], two["measured"], two["confirmed"]) == ("tuned", 2, 2, True)
    assert (two["task_key"], two["label"]) == (project.task.key, "dense 32->64")
    assert sum(two["statuses"].values()) == 2
    assert two["gflops"] == pytest.approx(project.task.workload.flop / two["latency_s"] / 1e9)
    confirmed = [each for each in project.content.confirmations if each.after_trials == 2]
    assert [each.rank for each in confirmed] == [0, 1, 2][: len(confirmed)] and two["config"] == confirmed[0].config
    assert two["designs"] == []
    assert two["rivals"][0] == {"config": two["config"], "latency_s": two["latency_s"]}


def test_a_run_records_its_host_and_versions(project: Project, two: dict[str, Any]) -> None:
    run = project.content.run
    assert (run.key, run.preset, run.seed, run.threads) == (two["run_key"], "random", 7, 1)
    assert {"python", "apache-tvm", "numpy"} <= set(run.versions)
    assert run.host["cores"] >= 1


@pytest.mark.guard
def test_the_rejected_share_of_the_space_is_recorded_once(project: Project, four: dict[str, Any]) -> None:
    content = project.content
    space = get_target(content.task.target).space(content.task.workload)
    assert content.space is not None and content.space.size == space.size
    assert set(content.space.rejections) <= {constraint.reason for constraint in space.constraints}
    everything = space.vectors(np.arange(space.size))
    rejected_share = 1 - space.valid(everything).mean()
    assert sum(content.space.rejections.values()) / content.space.sampled == pytest.approx(rejected_share, abs=0.05)
    assert project.shard.read_text().count('"kind":"space"') == 1


def test_the_default_config_is_confirmed_with_the_fastest(project: Project, four: dict[str, Any]) -> None:
    content = project.content
    default = get_target(content.task.target).default_config(content.task.workload)
    confirmed = [dict(each.config) for each in content.confirmations if each.after_trials == 4]
    assert json.loads(json.dumps(default)) in confirmed and four["config"] == confirmed[0]


def test_a_larger_budget_measures_the_difference(project: Project, shard_of_two: bytes, four: dict[str, Any]) -> None:
    assert (four["trials"], four["measured"]) == (4, 4)
    assert project.shard.read_bytes().startswith(shard_of_two)
    configs = [json.dumps(trial.config) for trial in project.content.trials]
    assert len(set(configs)) == len(configs) == 4


def test_a_budget_that_is_no_larger_measures_nothing(
    project: Project, two: dict[str, Any], four: dict[str, Any]
) -> None:
    before = project.shard.read_bytes()
    three = project.tune(3)
    assert (three["trials"], three["measured"], three["confirmed"]) == (3, 3, False)
    assert three["latency_s"] == min(
        trial.measurement.latency_s for trial in project.content.trials[:3] if trial.measurement.latency_s is not None
    )
    assert (project.tune(2), project.tune(4)) == (two, four)
    assert project.shard.read_bytes() == before


def test_a_resumed_run_knows_its_best(project: Project, four: object, monkeypatch: pytest.MonkeyPatch) -> None:
    best_s = []

    def measurer(task: Task, options: MeasureOptions, access: DeviceAccess | None, fastest: Trial) -> None:
        best_s.append(fastest.measurement.latency_s)
        raise InterruptedError

    monkeypatch.setattr("anole.tune.job.make_measurer", measurer)
    with pytest.raises(InterruptedError):
        project.tune(5)
    latencies_s = [trial.measurement.latency_s for trial in project.content.trials]
    assert len(latencies_s) == 4 and best_s == [min(filter(None, latencies_s))]


@pytest.mark.guard
def test_a_task_without_a_success_has_a_receipt(tmp_path: Path) -> None:
    huge = Project(tmp_path, Dense(1, 1 << 22, 1 << 22))
    receipt = huge.tune(2)
    assert (receipt["status"], receipt["config"], receipt["latency_s"]) == ("failed", None, None)
    assert receipt["statuses"] == {"build_error": 2}


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> str:
    """Pretend to be on another machine; return its processor."""
    elsewhere = replace(processor(), name="another processor")
    monkeypatch.setattr("anole.targets.cpu.target.processor", lambda: elsewhere)
    return elsewhere.name


def test_a_machine_that_is_not_the_target_measures_nothing(tmp_path: Path, moved: str) -> None:
    new = Project(tmp_path)
    expected = f"{new.task.label}: cannot be measured here: cpu {processor().name} with 1 threads: .* is {moved}"
    with pytest.raises(TargetError, match=re.escape(expected).replace(r"\.\*", ".*")):
        new.tune(2)
    assert not new.shards.exists()


def test_too_few_processors_measure_nothing(tmp_path: Path) -> None:
    crowd = Project(tmp_path, target={**describe_cpu(threads=1), "threads": 4096})
    with pytest.raises(TargetError, match=r"with 4096 threads: .* this process may use"):
        crowd.tune(2)
    assert not crowd.shards.exists()


def test_another_machine_can_use_records_but_not_add_to_them(
    project: Project, two: dict[str, Any], four: object, moved: str
) -> None:
    before = project.shard.read_bytes()
    assert project.tune(2) == two
    with pytest.raises(TargetError, match=f"is {moved}"):
        project.tune(6)
    with pytest.raises(TargetError, match=f"is {moved}"):
        project.tune(6, failures_again=True)
    assert project.shard.read_bytes() == before


def test_a_corrupt_shard_stops_the_task_and_stays_unchanged(tmp_path: Path, project: Project, four: object) -> None:
    other = Project(tmp_path, project.task.workload)
    shard = other.shards / project.shard.relative_to(project.shards)
    shard.parent.mkdir(parents=True)
    lines = project.shard.read_text().splitlines(keepends=True)
    shard.write_text(lines[0] + "{}\n" + "".join(lines[1:]))
    before = shard.read_bytes()
    with pytest.raises(StoreError, match=f"{shard.name}:2"):
        other.tune(4)
    assert shard.read_bytes() == before


def test_a_task_file_with_a_wrong_name_is_rejected(project: Project, tmp_path: Path) -> None:
    path = tmp_path / ("0" * 64 + ".json")
    path.write_text(project.path.read_text())
    with pytest.raises(DocumentError, match=f"holds a task with the key {project.task.key}"):
        tune_task(path, TuneOptions(RANDOM, 0, 1, tmp_path / "shards"))


SMALL, LARGE = Dense(1, 32, 64), Dense(1, 256, 512)
SMALL_LABEL, LARGE_LABEL = "dense 32->64", "dense 256->512"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A folder with two tasks and their manifest."""
    write_pair(tmp_path, describe_cpu(threads=1), weight_of_large=3)
    return tmp_path


def write_pair(folder: Path, target: dict[str, Any], weight_of_large: int) -> None:
    listed = []
    for workload, weight in ((SMALL, 1), (LARGE, weight_of_large)):
        task = Task(workload, target, 1)
        write_task(folder / f"{task.key}.json", task)
        listed.append(ListedTask(task.key, task.label, workload.flop, weight, ("layer",)))
    origin = Origin({}, target, {})
    write_manifest(folder / "manifest.json", Manifest("pair", "any", "torch:any:pair", {}, origin, tuple(listed), 1))


def tune_pair(folder: Path, trials: int, seconds: float = math.inf) -> dict[str, dict[str, Any]]:
    out = folder / f"together-{trials}.json"
    settings = replace(RANDOM, batch=2)
    tune_model(folder / "manifest.json", folder, TuneOptions(settings, 7, trials, folder / "shards"), out, seconds)
    return {receipt["label"]: receipt for receipt in json.loads(out.read_text())["receipts"]}


def test_a_shared_budget_is_spent_where_it_saves_most(pair: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    receipts = tune_pair(pair, 7)
    assert caplog.messages[-1] == "pair on any: 7 trials in 2 tasks"
    assert {receipt["status"] for receipt in receipts.values()} == {"tuned"}
    assert sum(receipt["measured"] for receipt in receipts.values()) == 7
    assert receipts[LARGE_LABEL]["measured"] > receipts[SMALL_LABEL]["measured"] >= 2
    stored = [read_shard(path) for path in (pair / "shards").glob("*/*.jsonl")]
    assert {content.task.label: len(content.trials) for content in stored} == {
        label: receipt["measured"] for label, receipt in receipts.items()
    }


@pytest.mark.guard
def test_a_time_budget_includes_earlier_runs(pair: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for seconds in (1e-9, 1e-9):
        receipts = tune_pair(pair, 1000, seconds)
        assert {label: receipt["measured"] for label, receipt in receipts.items()} == {SMALL_LABEL: 0, LARGE_LABEL: 2}
        assert f"{SMALL_LABEL}: no trial" in caplog.messages


@pytest.mark.guard
def test_a_shared_budget_can_be_resumed_and_raised_without_measuring_twice(pair: Path) -> None:
    tune_pair(pair, 5)
    before = {path: path.read_bytes() for path in (pair / "shards").glob("*/*.jsonl")}
    assert tune_pair(pair, 5) and {path: path.read_bytes() for path in before} == before
    receipts = tune_pair(pair, 8)
    assert sum(receipt["measured"] for receipt in receipts.values()) == 8
    assert all(path.read_bytes().startswith(content) for path, content in before.items())


@pytest.mark.guard
def test_a_warm_start_records_and_keeps_its_sources(tmp_path: Path, project: Project, four: object) -> None:
    from anole.search.surrogate.boosted_trees import BoostedTrees

    warm = replace(RANDOM, warm_start=True, surrogate=BoostedTrees(max_rounds=5), batch=2)
    similar = Project(tmp_path, Dense(1, 48, 64))
    similar.shards = project.shards
    for trials in (2, 3):
        similar.tune(trials, warm)
        content = similar.content
        assert [(source.task_key, source.trials) for source in content.sources or ()] == [(project.task.key, 4)]
        assert len(content.trials) == trials
    assert similar.shard.read_text().count('"warm_start","sources"') == 1


def tune_simulated(folder: Path, **settings: Any) -> Project:
    return Project(folder, Conv2d(1, 8, 8, 32, 32, (3, 3), padding=(1, 1, 1, 1)), describe_vta(**settings))


def test_simulated_trials_need_no_confirmation(tmp_path: Path) -> None:
    project = tune_simulated(tmp_path / "fixed")
    receipt, content = project.tune(4), project.content
    assert RANDOM.n_confirm > 0 and content.confirmations == ()
    assert (receipt["status"], receipt["confirmed"], receipt["designs"]) == ("tuned", True, [])
    assert receipt["latency_s"] == min(trial.measurement.latency_s or 1.0 for trial in content.trials)
    assert receipt["latency_s"] == VtaTarget(project.task.target).simulate(project.task.workload, receipt["config"])
    assert (len(content.trials), content.run.threads) == (4, 1)
    before = project.shard.read_bytes()
    assert project.tune(4) == receipt and project.shard.read_bytes() == before


@pytest.mark.guard
def test_a_hardware_search_reports_the_fastest_config_of_each_design(tmp_path: Path) -> None:
    project = tune_simulated(tmp_path / "search", hardware="search", area_max=1.5)
    receipt = project.tune(30)
    trials = [trial for trial in project.content.trials if trial.measurement.latency_s is not None]
    of_each: dict[Any, list[float]] = {}
    for trial in trials:
        of_each.setdefault(tuple(trial.config[name] for name in HARDWARE), []).append(trial.measurement.latency_s or 0)
    assert len(of_each) > 3
    found = {tuple(design["config"][name] for name in HARDWARE): design["latency_s"] for design in receipt["designs"]}
    assert found == {hardware: min(latencies_s) for hardware, latencies_s in of_each.items()}
    assert len(receipt["designs"]) == len(found)
    # The best config is not the fastest, but the one with the best latency relative to its worth.
    worth = VtaTarget(project.task.target).space(project.task.workload).worth

    def cost(config: Any, latency_s: float) -> float:
        return latency_s / max(worth(config, latency_s), 1e-9)

    costs = [cost(trial.config, trial.measurement.latency_s or 0.0) for trial in trials]
    assert cost(receipt["config"], receipt["latency_s"]) == min(costs)
    again = tune_simulated(tmp_path / "again", hardware="search", area_max=1.5).tune(30)
    differs = ("elapsed_s", "crc")
    assert {**again, **dict.fromkeys(differs)} == {**receipt, **dict.fromkeys(differs)}


@pytest.mark.guard
def test_simulated_tasks_can_share_a_budget(tmp_path: Path) -> None:
    write_pair(tmp_path, describe_vta(), weight_of_large=1)
    receipts = tune_pair(tmp_path, 4)
    assert {receipt["status"] for receipt in receipts.values()} == {"tuned"}
    assert all(receipt["confirmed"] and receipt["designs"] == [] for receipt in receipts.values())
    assert all(not read_shard(path).confirmations for path in (tmp_path / "shards").glob("*/*.jsonl"))
