"""A target whose hardware is absent: it is skipped, or compiled for with imported records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.documents.build import read_build
from anole.documents.evaluation import read_evaluation
from anole.documents.manifest import read_task
from anole.record import Measurement, Run, Status, Trial, utc_now
from anole.search.loop import TUNER_VERSION
from anole.search.presets import read_tuner
from anole.store.shard import Shard
from anole.targets import get_target
from anole_cuda.device.machine import present_gpus

from .conftest import Project

pytestmark = [pytest.mark.workflow, pytest.mark.skipif(bool(present_gpus()), reason="this machine has a GPU")]


def write(project: Project, channels: list[int], gpu: dict[str, Any], *others: dict[str, Any]) -> None:
    targets = {"gpu": {"kind": "cuda", **gpu}, "cpu": {"kind": "cpu", "threads": 1}}
    builds = [{"model": "chain", "target": "gpu"}, *others]
    project.write_chain(*channels, targets=targets, tuning={"preset": "random", "trials": 2}, builds=builds)


def tune_elsewhere(project: Project, shards: Path, n_trials: int) -> list[str]:
    """Write the shards of tuning on a machine with the GPU; return the labels of the tasks."""
    assert project.anole("extract", "chain", "--target", "gpu").returncode == 0
    tuner, labels = read_tuner({"preset": "random"}), []
    for path in sorted((project.folder / "work/tasks").glob("*.json")):
        task = read_task(path)
        run = Run(task.key, tuner.preset, 0, TUNER_VERSION, tuner.to_json(), host={"name": "elsewhere"})
        space = get_target(task.target).space(task.workload)
        with Shard.open(shards, run, task) as shard:
            for number, vector in enumerate(space.sample(n_trials, np.random.default_rng(0))):
                latency_s = 1e-5 * (2 - number)
                measurement = Measurement(Status.OK, None, latency_s, repeats=3)
                gflops = task.workload.flop / latency_s / 1e9
                shard.append_trial(Trial(number, 0, space.config(vector), measurement, 1.0, gflops, utc_now()))
        labels.append(task.label)
    return labels


@pytest.mark.guard
def test_optional_targets_are_skipped_with_a_message(empty: Project) -> None:
    write(empty, [16], {"required": False}, {"model": "chain", "target": "cpu"})
    outcome = empty.complete("tuned")
    assert "anole: skipping build chain-gpu-random: " in outcome.output
    assert outcome.jobs["extract"] == ["chain-cpu"] and len(outcome.jobs["tune"]) == 1
    assert "skipped: chain-gpu-random" in empty.anole("plan").stdout


@pytest.mark.slow
def test_a_build_is_compiled_from_an_imported_database(empty: Project, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("elsewhere")
    write(empty, [16, 32], {"arch": "sm_90"})
    labels = tune_elsewhere(empty, other / "shards", 2)
    merged = empty.anole("merge", "--shards", str(other / "shards"), "--database", str(other / "tuning.sqlite"))
    assert merged.returncode == 0, merged.stderr
    taken = empty.anole("import", str(other / "tuning.sqlite"))
    assert "2 new runs" in taken.stdout and "4 new trials" in taken.stdout, taken.stderr
    empty.complete()
    build = read_build(empty.folder / "builds/chain-gpu-random")
    assert build.coverage.share == 1.0 and (build.runs_on, build.threads) == ("cuda", 1)
    assert {task.latency_s for task in build.tasks} == {1e-5} and len(build.tasks) == len(labels)
    # The section of every GPU binary, and the CUDA graph that is captured once.
    library = (empty.folder / "builds/chain-gpu-random/model.so").read_bytes()
    assert b".nv.info" in library and b"cuda_graph.run_or_capture" in library
    evaluation = read_evaluation(empty.folder / "work/evaluations/chain-gpu-random.json")
    assert evaluation.latencies == () and "found no GPU" in (evaluation.absence or "")
    assert empty.query("select count(*) from trial") == [(4,)]
    ran = empty.anole("run", "builds/chain-gpu-random", "--input", "x.npy")
    assert (ran.returncode, "Traceback" in ran.stderr) == (2, False)
