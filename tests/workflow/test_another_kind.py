"""A kind of target from another package, see `another_kind`, from models.yaml to the database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.workflow, pytest.mark.slow]

TARGETS = {"wooden": {"kind": "abacus", "rods": 1}}


def query(project: Any, sql: str) -> list[Any]:
    with sqlite3.connect(project.folder / "db/tuning.sqlite") as db:
        return db.execute(sql).fetchall()


def test_a_network_is_built_for_a_kind_that_another_package_brings(
    empty: Any, onnx_writer: Callable[..., None]
) -> None:
    onnx_writer(empty.folder / "chain.onnx", [16])
    models, builds = {"chain": {"source": "onnx:chain.onnx"}}, [{"model": "chain", "target": "wooden"}]
    empty.write(models, targets=TARGETS, builds=builds)
    empty.packages = Path(__file__).parent / "another_kind"
    outcome = empty.snakemake()
    assert outcome.code == 0, outcome.output
    assert {rule: len(jobs) for rule, jobs in outcome.jobs.items()} == {
        "extract": 1,
        "tune": 1,
        "compile": 1,
        "evaluate": 1,
        "merge": 1,
    }
    ((target,),) = query(empty, "select distinct target from task")
    assert json.loads(target)["kind"] == "abacus" and json.loads(target)["rods"] == 1
    configs = [json.loads(config) for (config,) in query(empty, "select config from trial where status = 'ok'")]
    assert len(configs) == 2
    assert all((config["auto_unroll_max_step"], config["unroll_explicit"]) == (0, 0) for config in configs)
    assert query(empty, "select matched from build_task") == [("tuned",)]
    ((latency_s, error),) = query(empty, "select latency_s, relative_error from evaluation")
    assert latency_s > 0 and error < 1e-4
