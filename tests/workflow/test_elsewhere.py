"""A target whose hardware is elsewhere: refused, skipped, or compiled for from records that were made there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.documents.build import read_build
from anole.documents.evaluation import read_evaluation
from anole.documents.task import read_task
from anole.record import Measurement, Run, Status, Trial, utc_now
from anole.search.loop import TUNER_VERSION
from anole.search.presets import read_tuner
from anole.store.shard import Shard
from anole.targets import get_target
from anole.targets.cuda.device.gpus import present_gpus

pytestmark = [
    pytest.mark.workflow,
    pytest.mark.skipif(bool(present_gpus()), reason="this machine has a GPU"),
]

TUNING = {"preset": "random", "trials": 2}


@pytest.fixture
def project(empty: Any, onnx_writer: Callable[..., None]) -> Any:
    onnx_writer(empty.folder / "chain.onnx", [16, 32])
    write(empty, {"kind": "cuda", "arch": "sm_90"})
    return empty


def write(project: Any, gpu: dict[str, Any], *others: dict[str, Any]) -> None:
    project.write(
        {"chain": {"source": "onnx:chain.onnx"}},
        targets={"gpu": gpu, "cpu": {"kind": "cpu", "threads": 1}},
        tuning=TUNING,
        builds=[{"model": "chain", "target": "gpu"}, *others],
    )


def tune_elsewhere(project: Any, shards: Path, n_trials: int) -> list[str]:
    """Leaves the shards that tuning would leave on the machine with the GPU; returns the labels of the tasks."""
    assert project.anole("extract", "chain", "--target", "gpu").returncode == 0
    tuner, labels = read_tuner({"preset": "random"}), []
    for path in sorted((project.folder / "work/tasks").glob("*.json")):
        task = read_task(path)
        run = Run(task.key, tuner.preset, 0, TUNER_VERSION, tuner.to_json(), host={"name": "elsewhere"})
        space = get_target(task.target).space(task.workload)
        with Shard.open(shards, run, task) as shard:
            for number, vector in enumerate(space.sample(n_trials, np.random.default_rng(0))):
                latency_s = 1e-5 * (2 - number)
                measurement, gflops = (
                    Measurement(Status.OK, None, latency_s, repeats=3),
                    task.workload.flop / latency_s / 1e9,
                )
                shard.append_trial(Trial(number, 0, space.config(vector), measurement, 1.0, gflops, utc_now()))
        labels.append(task.label)
    return labels


@pytest.mark.guard
def test_nothing_is_started_for_hardware_that_is_not_here(project: Any) -> None:
    outcome = project.snakemake()
    assert (outcome.code, outcome.jobs) == (2, {})
    (line,) = [line for line in outcome.output.splitlines() if line.startswith("anole: ")]
    assert line.startswith("anole: models.yaml: targets.gpu: cuda sm_90: found no GPU on this machine")
    assert "build chain-gpu-random lacks the records of any task" in line and "`required: false`" in line


@pytest.mark.guard
def test_what_is_not_required_is_skipped_with_a_notice(project: Any, onnx_writer: Callable[..., None]) -> None:
    onnx_writer(project.folder / "chain.onnx", [16])
    write(project, {"kind": "cuda", "required": False}, {"model": "chain", "target": "cpu"})
    outcome = project.snakemake("tuned")
    assert outcome.code == 0, outcome.output
    assert "anole: skips the build chain-gpu-random: " in outcome.output
    assert outcome.jobs["extract"] == ["chain-cpu"] and len(outcome.jobs["tune"]) == 1
    assert "skips chain-gpu-random" in project.anole("plan").stdout


@pytest.mark.slow
def test_a_build_is_compiled_from_a_database_that_was_filled_elsewhere(project: Any, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("elsewhere")
    labels = tune_elsewhere(project, other / "shards", 2)
    merged = project.anole("merge", "--shards", str(other / "shards"), "--database", str(other / "tuning.sqlite"))
    assert merged.returncode == 0, merged.stderr
    taken = project.anole("import", str(other / "tuning.sqlite"))
    assert "2 runs are new" in taken.stdout and "4 trials are new" in taken.stdout, taken.stderr
    outcome = project.snakemake()
    assert outcome.code == 0, outcome.output
    build = read_build(project.folder / "builds/chain-gpu-random")
    assert build.coverage.share == 1.0 and (build.runs_on, build.threads) == ("cuda", 1)
    assert {task.latency_s for task in build.tasks} == {1e-5} and len(build.tasks) == len(labels)
    # The section that every binary for a GPU has, and the graph that is recorded once.
    library = (project.folder / "builds/chain-gpu-random/model.so").read_bytes()
    assert b".nv.info" in library and b"cuda_graph.run_or_capture" in library
    evaluation = read_evaluation(project.folder / "work/evaluations/chain-gpu-random.json")
    assert evaluation.latencies == () and "found no GPU" in (evaluation.absence or "")
    rows = sqlite3.connect(project.folder / "db/tuning.sqlite").execute("select count(*) from trial").fetchall()
    assert rows == [(4,)]
    said = project.anole("run", "builds/chain-gpu-random", "--input", "x.npy")
    assert (said.returncode, "Traceback" in said.stderr) == (2, False)


@pytest.mark.guard
def test_a_build_without_trials_needs_no_hardware(project: Any) -> None:
    project.edit("models.yaml", "trials: 2", "trials: 0")
    outcome = project.snakemake("builds/chain-gpu-random")
    assert (project.folder / "builds/chain-gpu-random/model.so").exists(), outcome.output
