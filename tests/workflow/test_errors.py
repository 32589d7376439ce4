"""A mistake gives one clear message, starts nothing and loses nothing."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.workflow


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("preset: random", "preset: randon", "models.yaml: tuning.preset: "),
        ("builds:", "builds: [", "models.yaml: line "),
        ("builds:", "? [a, b]\n: 1\nbuilds:", "models.yaml: line "),
    ],
)
def test_a_mistake_in_the_file_is_one_line(one: Any, old: str, new: str, message: str) -> None:
    one.edit("models.yaml", old, new)
    outcome = one.snakemake()
    assert (outcome.code, outcome.jobs) == (2, {})
    (line,) = [line for line in outcome.output.splitlines() if line.startswith("anole: ")]
    assert line.startswith(f"anole: {message}")
    assert "Traceback" not in outcome.output


def test_a_missing_file_is_named(empty: Any) -> None:
    outcome = empty.snakemake()
    assert outcome.code == 2
    assert "anole: models.yaml: there is no such file in " in outcome.output
    assert not (empty.folder / "work").exists()


def test_another_file_than_models_yaml_may_be_named(one: Any) -> None:
    (one.folder / "models.yaml").rename(one.folder / "others.yaml")
    assert one.snakemake("tuned", "--config", "spec=others.yaml").jobs == {}
    outcome = one.snakemake("--config", "spec=nothing.yaml")
    assert (outcome.code, outcome.jobs) == (2, {})
    assert "anole: nothing.yaml: there is no such file in " in outcome.output


def test_a_file_of_another_folder_is_refused(one: Any) -> None:
    (one.folder / "elsewhere").mkdir()
    (one.folder / "models.yaml").rename(one.folder / "elsewhere" / "models.yaml")
    outcome = one.snakemake("--config", "spec=elsewhere/models.yaml")
    assert (outcome.code, outcome.jobs) == (2, {})
    assert "anole: --config spec: found elsewhere/models.yaml, which is not in the project folder " in outcome.output


def test_a_corrupt_model_starts_no_tuning(empty: Any, onnx_writer: Callable[..., None]) -> None:
    onnx_writer(empty.folder / "good.onnx", [16])
    (empty.folder / "bad.onnx").write_bytes((empty.folder / "good.onnx").read_bytes()[:200])
    empty.write({"bad": {"source": "onnx:bad.onnx"}, "good": {"source": "onnx:good.onnx"}})
    outcome = empty.snakemake("tuned")
    assert (outcome.code, list(outcome.jobs)) == (1, ["extract"])
    assert "anole: model bad: bad.onnx is not an ONNX file, or is damaged" in outcome.output
    assert "Traceback (most recent call last)" not in outcome.output
    assert not list((empty.folder / "work/models/bad").glob("*.json"))


@pytest.mark.parametrize(
    ("operator", "entry", "message"),
    [
        ("Wobble", {}, "Wobble"),
        ("Relu", {"inputs": {"x": [1, 4, 8, 8]}}, "input x: found shape [1, 4, 8, 8]; the file has [1, 3, 8, 8]"),
        ("Relu", {"inputs": {"image": [1, 3, 8, 8]}}, "inputs: found 'image'; chain.onnx has x"),
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
    assert line.startswith("anole: model chain: ")
    assert message in line
    assert "Traceback" not in done.stderr
    assert not (empty.folder / "work").exists()


def test_a_stale_manifest_is_noticed_without_snakemakes_memory(one: Any) -> None:
    shutil.rmtree(one.folder / ".snakemake/metadata")
    one.edit("models.yaml", "threads: 1", "threads: 1\n    mcpu: x86-64-v3")
    outcome = one.snakemake("tuned")
    assert (outcome.code, outcome.jobs) == (2, {})
    (line,) = [line for line in outcome.output.splitlines() if line.startswith("anole: ")]
    assert "is of another target_description than models.yaml" in line
    assert line.endswith("; `snakemake --forcerun extract` writes it again")


def test_a_task_that_was_deleted_is_made_again_as_told(one: Any) -> None:
    shutil.rmtree(one.folder / "work/tasks")
    shutil.rmtree(one.folder / "work/tuned")
    outcome = one.snakemake("tuned")
    assert outcome.code == 2
    assert "there is no such file; `snakemake --forcerun extract` writes it again" in outcome.output
    outcome = one.snakemake("tuned", "--forcerun", "extract")
    assert (outcome.code, sorted(outcome.jobs)) == (0, ["extract", "tune"])
    assert [len(content.trials) for content in one.shards().values()] == [2]


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
