"""From models.yaml to the database, and again after a change."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def built(tuned_two: Any, onnx_writer: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two ONNX files whose layers are all tuned already, built."""
    project = tuned_two[0].copy(tmp_path_factory.mktemp("built"))
    onnx_writer(project.folder / "more.onnx", [16, 16])
    project.write({"chain": {"source": "onnx:chain.onnx"}, "more": {"source": "onnx:more.onnx"}})
    outcome = project.snakemake()
    assert outcome.code == 0, outcome.output
    return project, outcome


@pytest.fixture
def whole(built: Any, tmp_path: Any) -> Any:
    return built[0].copy(tmp_path)


def query(project: Any, sql: str) -> list[Any]:
    with sqlite3.connect(project.folder / "db/tuning.sqlite") as db:
        return db.execute(sql).fetchall()


def test_what_was_tuned_is_compiled_evaluated_and_merged(built: Any) -> None:
    project, outcome = built
    names = ["chain-cpu-random", "more-cpu-random"]
    assert outcome.jobs == {"extract": ["more-cpu"], "compile": names, "evaluate": names, "merge": [""]}
    rows = query(project, "select model, reference, latency_s, relative_error from model_latency")
    assert sorted(row[:2] for row in rows) == [("chain", "onnxruntime"), ("more", "onnxruntime")]
    assert all(latency_s > 0 and error < 1e-4 for *_, latency_s, error in rows)
    assert query(project, "select count(*) from trial") == [(6,)]


def test_then_nothing_is_left_to_do(whole: Any) -> None:
    assert json.loads(whole.anole("plan", "--json").stdout)["steps"] == []
    outcome = whole.snakemake()
    assert (outcome.code, outcome.jobs) == (0, {})


def test_a_changed_layer_leaves_other_models_alone(whole: Any, onnx_writer: Callable[..., None]) -> None:
    onnx_writer(whole.folder / "chain.onnx", [16, 40])
    steps = json.loads(whole.anole("plan", "--json").stdout)["steps"]
    assert [step["stage"] for step in steps] == ["extract", "compile", "evaluate", "merge"]
    outcome = whole.snakemake()
    assert outcome.code == 0, outcome.output
    assert whole.tuned_labels(outcome) == ["conv2d 16->40 k3x3 s1 8x8"]
    built = ["chain-cpu-random"]
    assert [outcome.jobs[rule] for rule in ("extract", "compile", "evaluate")] == [["chain-cpu"], built, built]


def test_removing_a_model_only_merges(whole: Any) -> None:
    plain = yaml.safe_load((whole.folder / "models.yaml").read_text())
    whole.write({"chain": plain["models"]["chain"]})
    outcome = whole.snakemake()
    assert (outcome.code, list(outcome.jobs)) == (0, ["merge"])
    assert query(whole, "select count(*) from trial") == [(6,)]


def test_stages_by_hand_do_what_the_rules_do(whole: Any) -> None:
    (whole.folder / "db/tuning.sqlite").unlink()
    assert whole.anole("extract", "chain", "--target", "cpu").returncode == 0
    assert whole.anole("compile", "chain-cpu-random").returncode == 0
    assert whole.anole("merge").returncode == 0
    assert query(whole, "select distinct matched from build_task") == [("tuned",)]
