"""The workflow with the profile for Kubernetes. A fake kubectl runs the jobs on this machine.

This tests that Snakemake, the profile and its scripts work together, that a lost job is retried, and that groups of
jobs work. It does not test Kubernetes itself: whether it accepts the manifests, and where it runs the pods.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from anole.documents.evaluation import read_evaluation
from anole.store.shard import read_shard

from ..waiting import becomes_true
from .conftest import ROOT, TUNING

pytest.importorskip("snakemake_executor_plugin_cluster_generic")
pytestmark = [pytest.mark.workflow, pytest.mark.guard]

N_TRIALS = 3


@dataclass(frozen=True)
class Finished:
    """The project, Snakemake's output, the manifests in order of submission, and the folder of the fake kubectl."""

    folder: Path
    output: str
    manifests: dict[str, Any]
    state: Path


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Put the fake kubectl on PATH."""
    folder = tmp_path_factory.mktemp("kubectl")
    program = folder / "kubectl"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("kubectl.py")}" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "KUBECTL_STATE": str(folder), "KUBECTL_LOSES": "describe"}


@pytest.fixture(scope="module")
def finished(empty_project: Callable[[str], Any], environment: Mapping[str, str]) -> Finished:
    """A network with two tasks, tuned in one job, for a target described by a node; the first node is lost."""
    project = empty_project("kubernetes")
    target = {"kind": "cpu", "threads": 1, "nodes": {"node_selector": "cpu=zen5,disk=ssd"}}
    tuning = TUNING | {"trials": N_TRIALS}
    project.write_chain(16, 32, targets={"zen": target}, tuning=tuning, builds=[{"model": "chain", "target": "zen"}])
    profile = project.folder / "profiles/kubernetes"
    shutil.copytree(ROOT / "profiles/kubernetes", profile)
    job = yaml.safe_load((profile / "job.yaml").read_text())
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.test/anole"
    (profile / "job.yaml").write_text(yaml.safe_dump(job))
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    command += ["--profile", "profiles/kubernetes", "--seconds-between-status-checks", "1"]
    command += ["--group-components", "tune_zen=8", "--printshellcmds"]
    done = subprocess.run(
        command, cwd=project.folder, env=environment, text=True, timeout=240, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    state = Path(environment["KUBECTL_STATE"])
    paths = sorted(state.glob("*.json"), key=lambda path: path.stem.rpartition("-")[2])
    manifests = {path.stem: json.loads(path.read_text()) for path in paths}
    return Finished(project.folder, done.stdout, manifests, state)


def test_the_workflow_is_done_with_one_job_for_a_group(finished: Finished) -> None:
    begins = [name.rpartition("-")[0].removeprefix("anole-") for name in finished.manifests]
    assert begins == ["describe", "describe", "extract", "tune-zen", "compile", "evaluate"]
    shards = [read_shard(path) for path in (finished.folder / "db/shards").glob("*/*.jsonl")]
    assert [len(shard.trials) for shard in shards] == [N_TRIALS, N_TRIALS]
    assert read_evaluation(finished.folder / "work/evaluations/chain-zen-random.json").latencies
    assert (finished.folder / "db/tuning.sqlite").exists()


def test_jobs_of_a_group_run_one_after_another(finished: Finished) -> None:
    spans = [
        [trial.created_at for trial in read_shard(path).trials]
        for path in (finished.folder / "db/shards").glob("*/*.jsonl")
    ]
    first, second = sorted(spans)
    assert max(first) < min(second)


def test_a_job_has_one_builder_per_requested_core(finished: Finished) -> None:
    (name,) = [name for name in finished.manifests if name.startswith("anole-tune")]
    output = (finished.state / f"{name}.out").read_text()
    assert output.count("anole tune ") == output.count("--builders 1 ") == 2


def test_a_lost_job_is_retried_with_twice_the_memory(finished: Finished) -> None:
    lost, again, *_ = (job["spec"]["template"]["spec"]["containers"][0] for job in finished.manifests.values())
    assert [each["resources"]["limits"]["memory"] for each in (lost, again)] == ["1000M", "2000M"]
    assert f"Kubernetes: {next(iter(finished.manifests))} failed; see kubectl describe pods" in finished.output


def test_only_measuring_jobs_get_a_node_of_the_target_exclusively(finished: Finished) -> None:
    for name, job in finished.manifests.items():
        pod = job["spec"]["template"]["spec"]
        is_measuring = name.startswith(("anole-tune", "anole-evaluate"))
        assert ("affinity" in pod) == is_measuring, name
        on_node = is_measuring or name.startswith("anole-describe")
        assert pod.get("nodeSelector") == ({"cpu": "zen5", "disk": "ssd"} if on_node else None), name
        assert pod["activeDeadlineSeconds"] % (240 * 60) == 0, name


def test_a_cancelled_workflow_deletes_its_jobs(finished: Finished, environment: Mapping[str, str]) -> None:
    jobs = list(finished.manifests)[:2]
    subprocess.run([ROOT / "profiles/kubernetes/cancel.py", *jobs], env=environment, check=True)
    deleted = Path(environment["KUBECTL_STATE"]) / "deleted"
    assert becomes_true(lambda: deleted.exists() and deleted.read_text().split() == jobs)
