"""Evaluation of builds for the accelerator: bit-exact or refused, and the error vs. the network itself."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.documents.build import read_build, write_build
from anole.documents.document import encode_with_schema
from anole.documents.evaluation import read_evaluation
from anole.errors import BuildError, DocumentError
from anole.evaluate.stage import evaluate_build
from anole_vta.geometry import Geometry
from anole_vta.isa import AluOpcode
from anole_vta.section import accelerator_of

from .conftest import change_arrays, change_stream


def copy_build(accelerated: Path, folder: Path) -> Path:
    """Return a copy of a build that is four times as fast as untuned.

    Like builds of older versions, it has no SHA-256, so tests can change its files.
    """
    shutil.copytree(accelerated / "net", folder / "net")
    build = read_build(folder / "net")
    assert build.accelerator is not None
    slower = {**build.accelerator, "untuned_latency_s": 4 * build.accelerator["latency_s"]}
    write_build(folder / "net", replace(build, accelerator=slower, sha256=None))
    return folder / "net"


@pytest.fixture
def net(accelerated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of a build, with its project as the working directory."""
    monkeypatch.chdir(accelerated)
    return copy_build(accelerated, tmp_path)


def evaluate(folder: Path) -> dict[str, Any]:
    evaluate_build(folder, folder.parent / "evaluation.json")
    evaluation = encode_with_schema(read_evaluation(folder.parent / "evaluation.json"))
    (latency,) = evaluation["latencies"]
    return {**evaluation, **latency}


@pytest.fixture(scope="module")
def evaluation(accelerated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(accelerated)
        return evaluate(copy_build(accelerated, tmp_path_factory.mktemp("evaluated")))


def test_a_build_is_compared_with_itself_untuned_and_with_the_network(
    evaluation: dict[str, Any], accelerated: Path
) -> None:
    accelerator = accelerator_of(accelerated / "net", read_build(accelerated / "net"))
    assert (evaluation["build"], evaluation["threads"], evaluation["reference"]) == ("net-npu", 1, "untuned")
    assert evaluation["latency_s"] == accelerator.latency_s > 0
    assert evaluation["reference_latency_s"] == 4 * accelerator.latency_s and evaluation["speedup"] == 4
    assert (evaluation["latency_std_s"], evaluation["reference_latency_std_s"], evaluation["rounds"]) == (0, 0, 1)
    assert 0 < evaluation["relative_error"] < 0.15
    assert evaluation["snr_db"] == pytest.approx(-20 * np.log10(evaluation["relative_error"]))


def stream_of(folder: Path, layer: str) -> Path:
    steps = json.loads((folder / "network.json").read_text())["steps"]
    return folder / next(step["stream"] for step in steps if step.get("name") == layer)


@pytest.mark.parametrize(
    ("layer", "opcode", "change", "value"),
    [("second.0", AluOpcode.SHR, {"imm": 1}, "v"), ("max_pool_v4", AluOpcode.MAX, {"opcode": AluOpcode.MIN}, "v4")],
)
def test_a_program_that_computes_something_else_is_refused(
    net: Path, layer: str, opcode: AluOpcode, change: dict[str, Any], value: str
) -> None:
    change_stream(stream_of(net, layer), opcode, Geometry(variant="vta++"), **change)
    with pytest.raises(BuildError, match=f"the accelerator differs from the integer reference in NumPy: {value}"):
        evaluate(net)
    assert not (net.parent / "evaluation.json").exists()


@pytest.mark.examples(1)
def test_another_bias_increases_the_error(net: Path, evaluation: dict[str, Any]) -> None:
    change_arrays(stream_of(net, "head").with_suffix(".npz"), bias=lambda array: -array)
    found = evaluate(net)
    assert found["snr_db"] < evaluation["snr_db"] - 5


def test_other_weights_are_refused(net: Path) -> None:
    change_arrays(stream_of(net, "head").with_suffix(".npz"), weight=lambda array: -array)
    with pytest.raises(BuildError, match=r"differ from torch's: relative error 1\.\d+; at most 0.5 is allowed"):
        evaluate(net)


def test_a_build_that_cannot_be_loaded_is_refused(net: Path) -> None:
    (net / "network.json").unlink()
    with pytest.raises(BuildError, match=r"net: is not a build for vta: FileNotFoundError"):
        evaluate(net)


def test_the_weights_of_another_network_are_refused(net: Path) -> None:
    build = read_build(net)
    write_build(net, replace(build, entry={**build.entry, "source": "torch:tiny:residual_of_other_weights"}))
    with pytest.raises(BuildError, match=r"differ from torch's: relative error 1\.\d+; at most 0.5 is allowed"):
        evaluate(net)


def test_changed_files_are_refused(accelerated: Path, net: Path) -> None:
    shutil.copy(accelerated / "net/build.json", net)
    stream_of(net, "first.0").write_bytes(b"other")
    with pytest.raises(DocumentError, match=r"net/steps/.*: is not the file that build.json describes: its SHA-256"):
        evaluate(net)
