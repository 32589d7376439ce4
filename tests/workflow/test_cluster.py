"""The workflow on a real slurm cluster of two nodes: one is drained and its job killed, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from anole.documents.evaluation import read_evaluation
from anole.host.processor import processor
from anole.store.shard import read_shard

from .conftest import ROOT, TUNING, Project
from .slurm import FEATURE, NODES, PARTITION, Slurm, until, why_slurm_cannot_start

pytest.importorskip("snakemake_executor_plugin_slurm")
pytestmark = [
    pytest.mark.workflow,
    pytest.mark.guard,
    pytest.mark.skipif(bool(why_slurm_cannot_start()), reason=why_slurm_cannot_start() or ""),
]

N_TRIALS = 40
TIMEOUT_S = 600.0
MIN_LINES = 4  # of a shard: its head, and some trials


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with Slurm(tmp_path_factory.mktemp("slurm")) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def project(empty_project: Callable[[str], Project]) -> Project:
    """A network with targets on the same nodes: a node describes `zen`; models.yaml gives `other` a CPU none has."""
    project = empty_project("cluster")
    nodes = {"partition": PARTITION, "constraint": FEATURE}
    other = {"kind": "cpu", "mcpu": "x86-64-v2", "threads": 1, "model": "Another CPU", "nodes": nodes}
    project.write_chain(
        16,
        32,
        targets={"zen": {"kind": "cpu", "threads": 1, "nodes": nodes}, "other": other},
        tuning=TUNING | {"trials": N_TRIALS},
        builds=[{"model": "chain", "target": "zen"}, {"model": "chain", "target": "other", "total_trials": 2}],
    )
    return project


@pytest.fixture(scope="module")
def output(slurm: Slurm, project: Project, request: pytest.FixtureRequest) -> str:
    """The output of a workflow whose job is killed on a drained node; it ends with 1, because `other` is left out."""
    process = _snakemake(project)
    request.addfinalizer(process.kill)
    until(lambda: _n_started_tasks(project) == len(slurm.running()) == 2, "tuning of two tasks", TIMEOUT_S)
    slurm.drain(NODES[1])
    slurm.kill(slurm.running()[NODES[1]])
    output, _ = process.communicate(timeout=TIMEOUT_S)
    slurm.resume(NODES[1])
    assert process.returncode == 1, output
    return output


def test_a_killed_job_is_retried_and_resumes_its_trials(project: Project, output: str) -> None:
    assert "chain-zen-random" not in output[output.rindex("anole: left out") :]
    shards = [read_shard(path) for path in (project.folder / "db/shards").glob("*/*.jsonl")]
    assert [len(shard.trials) for shard in shards] == [N_TRIALS, N_TRIALS]
    assert [[trial.number for trial in shard.trials] for shard in shards] == [list(range(N_TRIALS))] * 2


def test_the_build_is_compiled_evaluated_and_merged(project: Project, output: str) -> None:
    evaluation = read_evaluation(project.folder / "work/evaluations/chain-zen-random.json")
    assert evaluation.latencies and evaluation.absence is None
    assert project.query("select count(*) from trial") == [(2 * N_TRIALS,)]


def test_a_node_describes_its_target_once(project: Project, output: str) -> None:
    described = json.loads((project.folder / "work/targets/zen.json").read_text())
    assert described["description"]["model"] == processor().name
    assert len(re.findall(r"^checkpoint describe:", _snakemake_log(project), re.MULTILINE)) == 1


def test_a_node_with_other_hardware_measures_nothing(project: Project, output: str) -> None:
    (message,) = [line for line in output.splitlines() if line.startswith("anole: left out: chain-other-random")]
    assert f"cpu Another CPU with 1 threads: this machine's CPU is {processor().name}" in message


def test_tune_and_evaluate_jobs_are_shown_with_their_results(output: str) -> None:
    results = re.findall(rf"^tune +conv2d .* GFLOP/s in {N_TRIALS} trials +[0-9.]+ s$", output, re.MULTILINE)
    assert len(results) == 2
    assert re.search(r"^evaluate +chain-zen-random +[0-9.]+ .s in float32, error ", output, re.MULTILINE)
    assert output.count("has been submitted with SLURM jobid") > 4


def test_measuring_jobs_get_a_node_exclusively(project: Project, output: str) -> None:
    # Snakemake's threads interleave the lines of their jobs, so rules and resources are searched separately.
    log = _snakemake_log(project)
    rules = re.findall(r"^ *rule (tune|tune_together|evaluate):$", log, re.MULTILINE)
    measuring = re.findall(r"^ +resources: (.*\bdevice=1\b.*)$", log, re.MULTILINE)
    assert set(rules) == {"tune", "tune_together", "evaluate"} and len(measuring) >= 4
    for resources in measuring:
        assert f"slurm_partition={PARTITION}" in resources and f"constraint={FEATURE}" in resources
        assert "--exclusive" in resources and "mem_mb=" in resources


def _snakemake_log(project: Project) -> str:
    (log,) = (project.folder / ".snakemake/log").glob("*.log")
    return log.read_text()


def _n_started_tasks(project: Project) -> int:
    shards = (project.folder / "db/shards").glob("*/*.jsonl")
    return sum(path.read_bytes().count(b"\n") >= MIN_LINES for path in shards)


def _snakemake(project: Project) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    command += ["--directory", str(project.folder), "--profile", str(ROOT / "profiles/slurm"), "--latency-wait", "10"]
    # squeue, because sacct needs accounting, which this slurm does not have. Short intervals, because jobs are short.
    command += ["--slurm-status-command", "squeue", "--slurm-no-account", "--seconds-between-status-checks", "1"]
    command += ["--slurm-init-seconds-before-status-checks", "1"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
