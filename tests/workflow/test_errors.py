"""A mistake gives one clear message, starts nothing and loses nothing."""

from __future__ import annotations

import fcntl
import re
import shutil
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.workflow


def test_a_mistake_in_the_file_is_one_line(one: Any) -> None:
    one.edit("models.yaml", "preset: random", "preset: randon")
    outcome = one.snakemake()
    assert (outcome.code, outcome.jobs) == (2, {})
    (line,) = [line for line in outcome.output.splitlines() if line.startswith("anole: ")]
    assert line.startswith("anole: models.yaml: tuning.preset: ")
    assert "Traceback" not in outcome.output


@pytest.mark.guard
def test_another_file_of_the_folder_than_models_yaml_may_be_named(one: Any) -> None:
    (one.folder / "models.yaml").rename(one.folder / "others.yaml")
    assert one.snakemake("tuned", "--config", "spec=others.yaml").jobs == {}
    (one.folder / "elsewhere").mkdir()
    (one.folder / "others.yaml").rename(one.folder / "elsewhere" / "models.yaml")
    outcome = one.snakemake("--config", "spec=elsewhere/models.yaml")
    assert (outcome.code, outcome.jobs) == (2, {})
    assert "anole: --config spec: found elsewhere/models.yaml, which is not in the project folder " in outcome.output


@pytest.fixture
def half_broken(empty: Any, onnx_writer: Callable[..., None]) -> Any:
    """A project of a damaged ONNX file and a whole one."""
    onnx_writer(empty.folder / "good.onnx", [16])
    (empty.folder / "bad.onnx").write_bytes((empty.folder / "good.onnx").read_bytes()[:200])
    empty.write({name: {"source": f"onnx:{name}.onnx"} for name in ("bad", "good")})
    return empty


DAMAGED = "model bad: bad.onnx is not an ONNX file, or is damaged: "


@pytest.mark.guard
def test_a_broken_model_stops_nobody_else(half_broken: Any) -> None:
    outcome = half_broken.snakemake()
    assert outcome.code == 1
    good = ["good-cpu-random"]
    assert (outcome.jobs["compile"], outcome.jobs["evaluate"], len(outcome.jobs["tune"])) == (good, good, 1)
    with sqlite3.connect(half_broken.folder / "db/tuning.sqlite") as db:
        assert db.execute("select model from model_latency").fetchall() == [("good",)]
    assert f"\nextract failed: logs/extract/bad-cpu.log:\nanole: {DAMAGED}" in outcome.output
    assert " -m anole " not in outcome.output and "\nbuilds/good-cpu-random " in outcome.output
    last = outcome.output.splitlines()[-1]
    assert last.startswith(f"anole: left out: bad-cpu-random: extract failed: {DAMAGED}")
    assert last.endswith(" (see logs/extract/bad-cpu.log)")
    assert "Traceback (most recent call last)" not in outcome.output
    assert not list((half_broken.folder / "work/models/bad").glob("*.json"))
    assert half_broken.anole("report").returncode == 0
    page = (half_broken.folder / "report.html").read_text()
    assert f'<td>bad-cpu-random</td><td>extract</td><td class="long">{DAMAGED}' in page


@pytest.mark.slow
def test_a_broken_model_stops_no_tuning_and_joins_the_others_when_mended(
    half_broken: Any, onnx_writer: Callable[..., None]
) -> None:
    outcome = half_broken.snakemake("tuned")
    assert (outcome.code, sorted(outcome.jobs)) == (1, ["extract", "tune"])
    assert outcome.output.splitlines()[-1].startswith(f"anole: extract failed: {DAMAGED}")
    onnx_writer(half_broken.folder / "bad.onnx", [16])
    outcome = half_broken.snakemake()
    assert outcome.code == 0 and "left out" not in outcome.output
    built = ["bad-cpu-random", "good-cpu-random"]
    assert outcome.jobs == {"extract": ["bad-cpu"], "compile": built, "evaluate": built, "merge": [""]}


@pytest.mark.slow
def test_a_broken_model_ends_a_run_that_does_not_keep_going(half_broken: Any) -> None:
    outcome = half_broken.snakemake("--workflow-profile", "none", "--show-failed-logs", "--nolock")
    assert (outcome.code, list(outcome.jobs)) == (1, ["extract"])
    assert outcome.output.splitlines()[-1].startswith(f"anole: left out: bad-cpu-random: extract failed: {DAMAGED}")


@pytest.mark.guard
@pytest.mark.parametrize(
    ("operator", "entry", "message"),
    [
        ("Wobble", {}, "model chain: .*Wobble"),
        ("Relu", {"inputs": {"x": [1, 4, 8, 8]}}, r"model chain: input x: found shape \[1, 4, 8, 8\]; the file has "),
        ("Relu", {"inputs": {"y": [1]}}, r"models\.yaml: models\.chain\.inputs\.y: chain\.onnx has no such input; "),
    ],
)
def test_what_cannot_be_extracted_is_told_in_one_line(
    empty: Any, onnx_writer: Callable[..., None], operator: str, entry: dict[str, Any], message: str
) -> None:
    onnx_writer(empty.folder / "chain.onnx", [16], operator=operator)
    empty.write({"chain": {"source": "onnx:chain.onnx", **entry}})
    done = empty.anole("extract", "chain", "--target", "cpu")
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("anole: ")]
    assert re.match(f"anole: {message}", line)
    assert "Traceback" not in done.stderr
    assert not (empty.folder / "work").exists()


@pytest.mark.guard
def test_a_task_that_was_deleted_is_made_again_as_told(one: Any) -> None:
    shutil.rmtree(one.folder / "work/tasks")
    shutil.rmtree(one.folder / "work/tuned")
    outcome = one.snakemake("tuned")
    assert outcome.code == 2
    assert "there is no such file; `snakemake --forcerun extract` writes it again" in outcome.output
    outcome = one.snakemake("tuned", "--forcerun", "extract")
    assert (outcome.code, sorted(outcome.jobs)) == (0, ["extract", "tune"])
    assert [len(content.trials) for content in one.shards().values()] == [2]


@pytest.mark.guard
def test_a_second_run_in_the_folder_is_kept_out(one: Any) -> None:
    shutil.rmtree(one.folder / "work/tuned")
    with open(one.folder / ".snakemake/anole.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = one.snakemake("tuned")
        assert (outcome.code, outcome.jobs) == (2, {})
        assert "anole: another snakemake is running in this folder" in outcome.output


def test_a_corrupt_line_of_a_shard_is_named_and_nothing_is_lost(one: Any) -> None:
    (path,) = one.shards()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "nonsense\n" + "".join(lines[1:]))
    before = path.read_bytes()
    one.edit("models.yaml", "trials: 2", "trials: 3")
    outcome = one.snakemake("tuned")
    assert (outcome.code, list(outcome.jobs)) == (1, ["tune"])
    assert f"{path.name}:2: " in outcome.output
    assert path.read_bytes() == before
