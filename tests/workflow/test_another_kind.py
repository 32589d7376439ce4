"""A kind of target from another package, see `another_kind`, from models.yaml to the database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Project

pytestmark = [pytest.mark.workflow, pytest.mark.slow]


def test_a_network_is_built_for_a_kind_from_another_package(empty: Project) -> None:
    targets = {"wooden": {"kind": "abacus", "rods": 1}}
    empty.write_chain(16, targets=targets, builds=[{"model": "chain", "target": "wooden"}])
    empty.packages = Path(__file__).parent / "another_kind"
    outcome = empty.complete()
    stages = ("extract", "tune", "compile", "evaluate", "merge")
    assert {rule: len(jobs) for rule, jobs in outcome.jobs.items()} == dict.fromkeys(stages, 1)
    ((target,),) = empty.query("select distinct target from task")
    assert json.loads(target)["kind"] == "abacus" and json.loads(target)["rods"] == 1
    configs = [json.loads(config) for (config,) in empty.query("select config from trial where status = 'ok'")]
    assert [(config["auto_unroll_max_step"], config["unroll_explicit"]) for config in configs] == [(0, 0)] * 2
    assert empty.query("select matched from build_task") == [("tuned",)]
    ((latency_s, error),) = empty.query("select latency_s, relative_error from evaluation")
    assert latency_s > 0 and error < 1e-4
    exported = empty.anole("export", "builds/chain-wooden-random", "--to", "library", "--level", "tuned")
    assert exported.returncode == 0 and (empty.folder / "library/libnetwork.so").exists(), exported.stderr
