"""Mistakes and damaged files give one clear message, without side effects, and the suggested remedy works."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from .conftest import Project, write_onnx

pytestmark = pytest.mark.workflow

DAMAGED = "model bad: bad.onnx is not an ONNX file, or is damaged: "


def test_a_mistake_in_the_file_is_one_line(one: Project) -> None:
    one.edit("models.yaml", "preset: random", "preset: randon")
    outcome = one.snakemake()
    assert (outcome.code, outcome.jobs) == (2, {})
    (line,) = [line for line in outcome.output.splitlines() if line.startswith("anole: ")]
    assert line.startswith("anole: models.yaml: tuning.preset: ")
    assert "Traceback" not in outcome.output


def test_a_corrupt_line_of_a_shard_is_reported_and_nothing_is_lost(one: Project) -> None:
    (path,) = one.shards()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "nonsense\n" + "".join(lines[1:]))
    before = path.read_bytes()
    one.edit("models.yaml", "trials: 2", "trials: 3")
    outcome = one.snakemake("tuned")
    assert (outcome.code, list(outcome.jobs)) == (1, ["tune"])
    assert f"{path.name}:2: " in outcome.output
    assert path.read_bytes() == before


@pytest.mark.guard
def test_spec_may_be_another_file_in_the_folder(one: Project) -> None:
    (one.folder / "models.yaml").rename(one.folder / "others.yaml")
    assert one.snakemake("tuned", "--config", "spec=others.yaml").jobs == {}
    (one.folder / "elsewhere").mkdir()
    (one.folder / "others.yaml").rename(one.folder / "elsewhere" / "models.yaml")
    outcome = one.snakemake("--config", "spec=elsewhere/models.yaml")
    assert (outcome.code, outcome.jobs) == (2, {})
    assert "anole: --config spec: found elsewhere/models.yaml, which is not in the project folder " in outcome.output


@pytest.fixture
def half_broken(empty: Project) -> Project:
    """A project with a damaged ONNX file and an intact one."""
    write_onnx(empty.folder / "good.onnx", [16])
    (empty.folder / "bad.onnx").write_bytes((empty.folder / "good.onnx").read_bytes()[:200])
    empty.write({name: {"source": f"onnx:{name}.onnx"} for name in ("bad", "good")})
    return empty


@pytest.mark.guard
def test_a_broken_model_does_not_stop_others_and_is_built_when_fixed(half_broken: Project) -> None:
    outcome = half_broken.snakemake()
    assert outcome.code == 1
    good = ["good-cpu-random"]
    assert (outcome.jobs["compile"], outcome.jobs["evaluate"], len(outcome.jobs["tune"])) == (good, good, 1)
    assert half_broken.query("select model from model_latency") == [("good",)]
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
    outcome = half_broken.snakemake("tuned")
    assert (outcome.code, sorted(outcome.jobs)) == (1, ["extract"])
    assert outcome.output.splitlines()[-1].startswith(f"anole: extract failed: {DAMAGED}")
    write_onnx(half_broken.folder / "bad.onnx", [16])
    outcome = half_broken.snakemake()
    assert outcome.code == 0 and "left out" not in outcome.output
    bad = ["bad-cpu-random"]
    assert outcome.jobs == {"extract": ["bad-cpu"], "compile": bad, "evaluate": bad, "merge": [""]}


@pytest.mark.slow
def test_a_broken_model_ends_a_run_that_does_not_keep_going(half_broken: Project) -> None:
    outcome = half_broken.snakemake("--workflow-profile", "none", "--show-failed-logs", "--nolock")
    assert (outcome.code, list(outcome.jobs)) == (1, ["extract"])
    assert outcome.output.splitlines()[-1].startswith(f"anole: left out: bad-cpu-random: extract failed: {DAMAGED}")


@pytest.mark.guard
def test_damaged_and_deleted_files_are_restored_by_the_suggested_command(one: Project) -> None:
    (manifest,) = (one.folder / "work/models").glob("*/*.json")
    before = manifest.read_bytes()
    manifest.write_bytes(b"[" * 100_000)
    for name in ("work/tasks", "work/tuned"):
        shutil.rmtree(one.folder / name)
    outcome = one.snakemake("tuned")
    assert outcome.code != 0
    # The last lines repeat it, with the builds left out because of it.
    message, *others = sorted({line for line in outcome.output.splitlines() if line.startswith("anole: ")}, key=len)
    assert all(message.removeprefix("anole: ") in line for line in others)
    assert "is not JSON: " in message and message.endswith("; `snakemake --forcerun extract` writes it again")
    outcome = one.snakemake("tuned", "--forcerun", "extract")
    assert (outcome.code, sorted(outcome.jobs)) == (0, ["extract", "tune"])
    assert manifest.read_bytes() == before
    assert [len(content.trials) for content in one.shards().values()] == [2]


@pytest.mark.guard
def test_changed_external_weights_trigger_a_new_build(one: Project) -> None:
    model, weights_file = onnx.load(one.folder / "chain.onnx"), Path(one.folder / "chain.data")
    weights = numpy_helper.to_array(model.graph.initializer[0])
    onnx.save(model, one.folder / "chain.onnx", save_as_external_data=True, location="chain.data", size_threshold=0)
    assert sorted(one.snakemake("builds/chain-cpu-random").jobs) == ["compile", "extract"]
    weights_file.write_bytes(np.ascontiguousarray(weights[::-1]).tobytes())
    assert one.planned("builds/chain-cpu-random") == ["compile/chain-cpu-random", "extract/chain-cpu"]
