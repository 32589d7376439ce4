"""From models.yaml to the database, and again after a change."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import pytest

from anole.store.shard import Shard

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def built(tuned_two: Any, onnx_writer: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An ONNX file whose layers are all tuned already, built."""
    project = tuned_two[0].copy(tmp_path_factory.mktemp("built"))
    onnx_writer(project.folder / "more.onnx", [16, 16])
    project.write({"more": {"source": "onnx:more.onnx"}})
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
    name = ["more-cpu-random"]
    assert outcome.jobs == {"extract": ["more-cpu"], "compile": name, "evaluate": name, "merge": [""]}
    rows = query(project, "select model, reference, latency_s, relative_error from model_latency")
    assert [row[:2] for row in rows] == [("more", "onnxruntime")]
    assert all(latency_s > 0 and error < 1e-4 for *_, latency_s, error in rows)
    assert query(project, "select count(*) from trial") == [(6,)]


def test_it_is_shown_by_networks_and_layers(built: Any, tuned_two: Any) -> None:
    layers = re.findall(
        r"^tune +(conv2d .*?)  +[0-9.,]+ GFLOP/s in 2 trials +[0-9.]+ s$", tuned_two[1].output, re.MULTILINE
    )
    assert sorted(layers) == tuned_two[0].tuned_labels(tuned_two[1])
    output = built[1].output
    stages = re.findall(r"^(\w+)  +([^ ]+(?: on cpu)?)  +\S.* [0-9.]+ s$", output, re.MULTILINE)
    build = "more-cpu-random"
    expected = [("extract", "more on cpu"), ("compile", build), ("evaluate", build), ("merge", "db/tuning.sqlite")]
    assert stages == expected
    rows = re.findall(r"^builds/(\S+) +[0-9.]+ +[0-9.]+ \([0-9.]+x\) +\S+$", output, re.MULTILINE)
    assert (rows, output.count("anole report")) == ([build], 1)
    assert len(output.splitlines()) <= 20 and not re.search(r"\x1b|[0-9a-f]{64}", output)


def test_then_nothing_is_left_to_do(whole: Any) -> None:
    assert json.loads(whole.anole("plan", "--json").stdout)["steps"] == []
    outcome = whole.snakemake()
    assert (outcome.code, outcome.jobs) == (0, {})
    assert "\nNothing to be done" in outcome.output and "\nbuilds/more-cpu-random " in outcome.output


@pytest.fixture
def both(whole: Any) -> Any:
    """The project with two builds."""
    whole.write({name: {"source": f"onnx:{name}.onnx"} for name in ("chain", "more")})
    assert whole.snakemake().jobs["compile"] == ["chain-cpu-random"]
    return whole


@pytest.mark.slow
def test_a_changed_layer_leaves_other_models_alone(both: Any, onnx_writer: Callable[..., None]) -> None:
    onnx_writer(both.folder / "chain.onnx", [16, 40])
    steps = json.loads(both.anole("plan", "--json").stdout)["steps"]
    assert [step["stage"] for step in steps] == ["extract", "compile", "evaluate", "merge"]
    outcome = both.snakemake()
    assert outcome.code == 0, outcome.output
    assert both.tuned_labels(outcome) == ["conv2d 16->40 k3x3 s1 8x8"]
    built = ["chain-cpu-random"]
    assert [outcome.jobs[rule] for rule in ("extract", "compile", "evaluate")] == [["chain-cpu"], built, built]


@pytest.mark.guard
def test_removing_a_model_only_merges(both: Any) -> None:
    both.write({"chain": {"source": "onnx:chain.onnx"}})
    outcome = both.snakemake()
    assert (outcome.code, list(outcome.jobs)) == (0, ["merge"])
    assert query(both, "select count(*) from trial") == [(6,)]


@pytest.mark.guard
def test_stages_by_hand_do_what_the_rules_do(whole: Any) -> None:
    (whole.folder / "db/tuning.sqlite").unlink()
    assert whole.anole("extract", "more", "--target", "cpu").returncode == 0
    assert whole.anole("compile", "more-cpu-random").returncode == 0
    assert whole.anole("merge").returncode == 0
    assert query(whole, "select distinct matched from build_task") == [("tuned",)]


@pytest.fixture
def grown(whole: Any) -> Any:
    """The project after one run has grown, before that is merged."""
    content = next(iter(whole.shards().values()))
    with Shard.open(whole.folder / "db/shards", content.run, content.task) as shard:
        shard.append_iteration(99, {"steps": 1.0})
    (whole.folder / "work/merged.json").unlink()
    return whole


def database_of(project: Any) -> list[tuple[bytes, int]]:
    """Returns the bytes of the database and of its seal, and which files they are."""
    paths = [project.folder / "db" / name for name in ("tuning.sqlite", "tuning.sqlite.seal")]
    return [(path.read_bytes(), path.stat().st_ino) for path in paths]


def is_merged(project: Any) -> bool:
    return query(project, "select count(*) from iteration where number = 99") == [(1,)]


@pytest.mark.guard
def test_a_merge_that_fails_leaves_the_database_byte_for_byte(grown: Any) -> None:
    before, shard = database_of(grown), next(iter(grown.shards()))
    whole = shard.read_bytes()
    shard.write_bytes(whole.replace(b"trial", b"trail", 1))
    outcome = grown.snakemake()
    assert (outcome.code, list(outcome.jobs)) == (1, ["merge"])
    assert "trail" in outcome.output and "To mend it" in outcome.output
    assert database_of(grown) == before
    assert not (grown.folder / "work/merged.json").exists()
    shard.write_bytes(whole)
    outcome = grown.snakemake()
    assert (outcome.code, list(outcome.jobs), is_merged(grown)) == (0, ["merge"], True)
    stamp = json.loads((grown.folder / "work/merged.json").read_text())
    assert (stamp["database"], stamp["builds"]) == ("db/tuning.sqlite", ["more-cpu-random"])
    assert (stamp["merged"]["changed_runs"], stamp["merged"]["trials"]) == (1, 6)


@pytest.mark.guard
@pytest.mark.parametrize("moment", ["during", pytest.param("after", marks=pytest.mark.slow)])
def test_a_snakemake_that_is_killed_leaves_the_database_as_a_merge_wrote_it(grown: Any, moment: str) -> None:
    before, log = database_of(grown), grown.folder / "logs/merge.log"
    awaited = {"during": log, "after": grown.folder / "work/merged.json"}[moment]
    log.unlink()
    process = grown.start()
    while not awaited.exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    after = database_of(grown)
    assert after[0] == before[0] or is_merged(grown)
    outcome = grown.snakemake()
    assert (outcome.code, is_merged(grown)) == (0, True), outcome.output


@pytest.mark.guard
def test_a_database_that_was_deleted_is_merged_again(whole: Any) -> None:
    (whole.folder / "db/tuning.sqlite").unlink()
    steps = json.loads(whole.anole("plan", "--json").stdout)["steps"]
    assert steps == [{"stage": "merge", "subject": "db/tuning.sqlite", "reason": "missing"}]
    outcome = whole.snakemake()
    assert (outcome.code, list(outcome.jobs)) == (0, ["merge"])
    assert query(whole, "select count(*) from trial") == [(6,)]
