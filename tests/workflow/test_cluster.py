"""The workflow on a real slurm cluster of two nodes: one is drained and its job killed, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anole.documents.evaluation import read_evaluation
from anole.host.processor import processor
from anole.store.shard import read_shard

from .conftest import ROOT, TUNING, Project
from .slurm import FEATURE, NODES, PARTITION, Slurm, absence, until

pytest.importorskip("snakemake_executor_plugin_slurm")
pytestmark = [
    pytest.mark.workflow,
    pytest.mark.guard,
    pytest.mark.skipif(absence() is not None, reason=absence() or ""),
]

N_TRIALS = 40
WAITS_S = 600.0


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with Slurm(tmp_path_factory.mktemp("slurm")) as started:
        yield started


@pytest.fixture(scope="module")
def project(empty_project: Callable[[str], Any]) -> Path:
    """A network for nodes that describe themselves, and for nodes with a wrong description in models.yaml."""
    made = empty_project("cluster")
    nodes = {"partition": PARTITION, "constraint": FEATURE}
    other = {"kind": "cpu", "mcpu": "x86-64-v2", "threads": 1, "model": "Another CPU", "nodes": nodes}
    made.write_chain(
        16,
        32,
        targets={"zen": {"kind": "cpu", "threads": 1, "nodes": nodes}, "other": other},
        tuning=TUNING | {"trials": N_TRIALS},
        builds=[{"model": "chain", "target": "zen"}, {"model": "chain", "target": "other", "total_trials": 2}],
    )
    return Path(made.folder)


@pytest.fixture(scope="module")
def output(slurm: Slurm, project: Path, request: pytest.FixtureRequest) -> str:
    """The output of the workflow, with one node drained and its job killed while two tasks are tuned."""
    process = _snakemake(project)
    request.addfinalizer(process.kill)
    until(lambda: _n_shards(project) == 2 and len(slurm.running()) == len(NODES), "two tasks tuned at once", WAITS_S)
    slurm.drain(NODES[1])
    slurm.kill(slurm.running()[NODES[1]])
    found, _ = process.communicate(timeout=WAITS_S)
    slurm.resume(NODES[1])
    assert process.returncode == 1, found
    return found


def test_a_killed_job_is_retried_and_resumes_its_trials(project: Path, output: str) -> None:
    assert "chain-zen-random" not in output[output.rindex("anole: left out") :]
    shards = [read_shard(path) for path in (project / "db/shards").glob("*/*.jsonl")]
    assert [len(shard.trials) for shard in shards] == [N_TRIALS, N_TRIALS]
    assert [[trial.number for trial in shard.trials] for shard in shards] == [list(range(N_TRIALS))] * 2


def test_the_build_is_compiled_evaluated_and_merged(project: Path, output: str) -> None:
    evaluation = read_evaluation(project / "work/evaluations/chain-zen-random.json")
    assert evaluation.latencies and evaluation.absence is None
    assert Project(project).query("select count(*) from trial") == [(2 * N_TRIALS,)]


def test_a_node_describes_its_target_once(project: Path, output: str) -> None:
    described = json.loads((project / "work/targets/zen.json").read_text())
    assert described["description"]["model"] == processor().name
    assert len(re.findall(r"^checkpoint describe:", _snakemake_log(project), re.MULTILINE)) == 1


def test_a_node_with_other_hardware_measures_nothing(project: Path, output: str) -> None:
    (message,) = [line for line in output.splitlines() if line.startswith("anole: left out: chain-other-random")]
    assert f"cpu Another CPU with 1 threads: this machine's CPU is {processor().name}" in message


def test_each_job_of_a_node_is_shown_with_its_result(output: str) -> None:
    results = re.findall(rf"^tune +conv2d .* GFLOP/s in {N_TRIALS} trials +[0-9.]+ s$", output, re.MULTILINE)
    assert len(results) == 2 and re.search(
        r"^evaluate +chain-zen-random +[0-9.]+ .s in float32, error ", output, re.MULTILINE
    )
    assert output.count("has been submitted with SLURM jobid") > 4


def test_measuring_jobs_get_a_node_exclusively(project: Path, output: str) -> None:
    # Threads of Snakemake write at the same time, so the lines of two jobs may be interleaved, but lines are intact.
    log = _snakemake_log(project)
    rules = re.findall(r"^ *rule (tune|tune_together|evaluate):$", log, re.MULTILINE)
    measuring = re.findall(r"^ +resources: (.*\bdevice=1\b.*)$", log, re.MULTILINE)
    assert set(rules) == {"tune", "tune_together", "evaluate"} and len(measuring) >= 4
    for resources in measuring:
        assert f"slurm_partition={PARTITION}" in resources and f"constraint={FEATURE}" in resources
        assert "--exclusive" in resources and "mem_mb=" in resources


def _snakemake_log(project: Path) -> str:
    (log,) = (project / ".snakemake/log").glob("*.log")
    return log.read_text()


def _n_shards(project: Path) -> int:
    return sum(1 for path in (project / "db/shards").glob("*/*.jsonl") if path.read_bytes().count(b"\n") > 3)


def _snakemake(project: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(project)]
    command += ["--profile", str(ROOT / "profiles/slurm"), "--latency-wait", "10"]
    # This slurm has no accounting, which sacct needs; and the status of short jobs must be checked often.
    command += ["--slurm-status-command", "squeue", "--slurm-no-account", "--seconds-between-status-checks", "1"]
    command += ["--slurm-init-seconds-before-status-checks", "1"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
