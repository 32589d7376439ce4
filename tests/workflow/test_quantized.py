"""For an int8 target, models are quantized, tuned, refined and compiled, and match their quantized files."""

from __future__ import annotations

from typing import Any

import pytest

from anole.documents.build import read_build
from anole.documents.evaluation import read_evaluation

pytestmark = [pytest.mark.workflow, pytest.mark.guard]

NAME = "chain-bytes-random"


def test_a_model_is_quantized_only_for_int8_targets(empty: Any) -> None:
    empty.write_chain(
        16,
        32,
        targets={"bytes": {"kind": "cpu", "threads": 1, "precision": "int8"}, "cpu": {"kind": "cpu", "threads": 1}},
        tuning={"preset": "random", "trials": 2},
        builds=[{"model": "chain", "target": "bytes", "refine": 2}, {"model": "chain", "target": "cpu", "trials": 0}],
    )
    outcome = empty.complete()
    assert [len(outcome.jobs[rule]) for rule in ("quantize", "extract", "refine", "compile")] == [1, 2, 1, 2]
    assert {content.task.workload.dtype for content in empty.shards().values()} == {"uint8"}
    build = read_build(empty.folder / f"builds/{NAME}")
    assert build.entry["source"] == "onnx:work/quantized/chain.onnx"
    assert all(task.matched == "tuned" for task in build.tasks)
    assert all(candidate.latency_s for task in build.tasks for candidate in task.refined)
    evaluation = read_evaluation(empty.folder / f"work/evaluations/{NAME}.json")
    assert all(latency.relative_error < 1e-4 for latency in evaluation.latencies)
    assert empty.snakemake().jobs == {}
    locked = empty.anole("lock", NAME)
    assert locked.returncode == 0, locked.stderr
    by_hand = empty.anole("quantize", "chain", "--method", "min-max", "--output", "by_hand.onnx")
    assert by_hand.returncode == 0 and "dB with min-max" in by_hand.stdout, by_hand.stderr
