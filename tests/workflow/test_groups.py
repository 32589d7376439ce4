"""If jobs run as a group on a cluster, only the failed one is reported. The cluster is a shell on this machine."""

from __future__ import annotations

import pytest

from .conftest import Project

pytest.importorskip("snakemake_executor_plugin_cluster_generic")
pytestmark = [pytest.mark.workflow, pytest.mark.guard]

_SUBMIT = 'sh -c \'sh "$1" >"$1.out" 2>&1; echo 1\' --'
"""A command that runs a job synchronously, and prints the job's number."""


def test_the_failed_job_of_a_group_is_the_reason_and_waiting_builds_are_left_out(two: Project) -> None:
    manifest = (two.folder / "work/models/tiny/cpu.json").read_text()
    (damaged,) = [path for path in (two.folder / "work/tasks").glob("*.json") if path.stem not in manifest]
    damaged.write_text("{")
    for receipt in (two.folder / "work/tuned").glob("*/*/*.json"):
        receipt.unlink()
    cluster = ["--executor", "cluster-generic", "--cluster-generic-submit-cmd", _SUBMIT, "--jobs", "1"]
    outcome = two.snakemake(*cluster, "--group-components", "tune_cpu=8", "--keep-going")
    assert outcome.code == 1
    assert outcome.output.count("Submitted group job") == 1
    (message,) = [line for line in outcome.output.splitlines() if line.startswith("anole: left out")]
    assert message.startswith("anole: left out: tiny-cpu-random, chain-cpu-random: tune failed: work/tasks/")
    assert f"{damaged.name}: is not JSON" in message
