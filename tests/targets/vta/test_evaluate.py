"""Evaluation of a build for the accelerator: bit-equal or refused, and how near to the network itself."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.documents.build import read_build, write_build
from anole.documents.document import with_schema
from anole.documents.evaluation import read_evaluation
from anole.errors import AnoleError, BuildError, DocumentError
from anole.evaluate.stage import evaluate_build
from anole.targets.vta.geometry import INSTRUCTION_BYTES, Geometry
from anole.targets.vta.isa import Alu, AluOpcode, decode, encode

PLUS = Geometry(variant="vta++")


@pytest.fixture
def net(accelerated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a build, its project the working directory.

    It has no SHA-256, as builds of older versions, so that it is evaluated whatever a test changes.
    """
    shutil.copytree(accelerated / "net", tmp_path / "net")
    write_build(tmp_path / "net", replace(read_build(tmp_path / "net"), sha256=None))
    monkeypatch.chdir(accelerated)
    return tmp_path / "net"


def evaluate(folder: Path) -> dict[str, Any]:
    evaluate_build(folder, folder.parent / "evaluation.json")
    evaluation = with_schema(read_evaluation(folder.parent / "evaluation.json"))
    (latency,) = evaluation["latencies"]
    return {**evaluation, **latency}


@pytest.fixture(scope="module")
def evaluation(accelerated: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("evaluated") / "net"
    shutil.copytree(accelerated / "net", folder)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(accelerated)
        return evaluate(folder)


@pytest.mark.guard
def test_a_build_is_compared_with_itself_untuned(evaluation: dict[str, Any], accelerated: Path) -> None:
    accelerator = read_build(accelerated / "net").accelerator
    assert accelerator is not None
    assert (evaluation["build"], evaluation["threads"], evaluation["reference"]) == ("net-npu", 1, "untuned")
    assert evaluation["latency_s"] == accelerator.latency_s > 0
    assert evaluation["reference_latency_s"] == accelerator.untuned_latency_s
    assert evaluation["speedup"] == accelerator.untuned_latency_s / accelerator.latency_s
    assert (evaluation["latency_std_s"], evaluation["reference_latency_std_s"], evaluation["rounds"]) == (0, 0, 1)


def test_how_near_it_is_to_the_network_is_said_twice(evaluation: dict[str, Any]) -> None:
    assert 0 < evaluation["relative_error"] < 0.15
    assert evaluation["snr_db"] > 15
    assert evaluation["snr_db"] == pytest.approx(-20 * np.log10(evaluation["relative_error"]))


def test_a_faster_build_is_faster_than_untuned(net: Path) -> None:
    build = read_build(net)
    assert build.accelerator is not None
    slower = replace(build.accelerator, untuned_latency_s=4 * build.accelerator.latency_s)
    write_build(net, replace(build, accelerator=slower))
    assert evaluate(net)["speedup"] == pytest.approx(4)


def stream_of(folder: Path, layer: str) -> Path:
    steps = json.loads((folder / "network.json").read_text())["steps"]
    return folder / next(step["stream"] for step in steps if step.get("name") == layer)


@pytest.mark.parametrize("layer", ["stem.0", "second.0", "head"])
def test_another_number_in_a_stream_is_refused(net: Path, layer: str) -> None:
    path = stream_of(net, layer)
    stream = path.read_bytes()
    words = [stream[at : at + INSTRUCTION_BYTES] for at in range(0, len(stream), INSTRUCTION_BYTES)]
    program = [decode(int.from_bytes(word, "little"), PLUS) for word in words]
    changed = [
        each._replace(imm=each.imm + 1) if isinstance(each, Alu) and each.opcode == AluOpcode.SHR else each
        for each in program
    ]
    assert changed != program
    path.write_bytes(b"".join(encode(each, PLUS).to_bytes(INSTRUCTION_BYTES, "little") for each in changed))
    with pytest.raises(BuildError, match="the accelerator differs from the integer reference in NumPy: v"):
        evaluate(net)
    assert not (net.parent / "evaluation.json").exists()


def test_a_pooling_that_takes_the_least_is_refused(net: Path) -> None:
    path = stream_of(net, "max_pool_v4")
    stream = path.read_bytes()
    words = [stream[at : at + INSTRUCTION_BYTES] for at in range(0, len(stream), INSTRUCTION_BYTES)]
    program = [decode(int.from_bytes(word, "little"), PLUS) for word in words]
    changed = [each._replace(opcode=AluOpcode.MIN) if isinstance(each, Alu) else each for each in program]
    path.write_bytes(b"".join(encode(each, PLUS).to_bytes(INSTRUCTION_BYTES, "little") for each in changed))
    with pytest.raises(BuildError, match="the accelerator differs from the integer reference in NumPy: v4"):
        evaluate(net)


def test_a_stream_that_was_cut_off_is_refused(net: Path) -> None:
    path = stream_of(net, "head")
    path.write_bytes(path.read_bytes()[:-INSTRUCTION_BYTES])
    with pytest.raises(AnoleError, match="does not end with FINISH"):
        evaluate(net)


def test_a_byte_of_the_weights_that_was_changed_is_refused(net: Path) -> None:
    path = stream_of(net, "second.0").with_suffix(".npz")
    whole = path.read_bytes()
    middle = whole.index(b"weight.npy") + 500
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0x40]) + whole[middle + 1 :])
    with pytest.raises(BuildError, match="is not a build for vta: BadZipFile"):
        evaluate(net)


@pytest.mark.examples(1)
@pytest.mark.parametrize("constant", ["weight", "bias"])
def test_other_constants_are_found_to_be_far_from_the_network(
    net: Path, constant: str, evaluation: dict[str, Any]
) -> None:
    path = stream_of(net, "head").with_suffix(".npz")
    with np.load(path) as arrays:
        plain = dict(arrays)
    np.savez(path, **{**plain, constant: -plain[constant]})
    found = evaluate(net)
    assert found["snr_db"] < evaluation["snr_db"] - 5


def test_other_micro_operations_are_refused(net: Path) -> None:
    path = stream_of(net, "first.0").with_suffix(".npz")
    with np.load(path) as arrays:
        plain = dict(arrays)
    plain["uop"] = plain["uop"][::-1]
    np.savez(path, **plain)
    with pytest.raises(AnoleError):
        evaluate(net)


def test_what_the_host_needs_must_be_there(net: Path) -> None:
    (net / "host.so").unlink()
    with pytest.raises(BuildError, match="there is no library with the host's function host0"):
        evaluate(net)


def test_a_build_without_its_network_is_refused(net: Path) -> None:
    (net / "network.json").unlink()
    with pytest.raises(BuildError, match=r"net: is not a build for vta: FileNotFoundError"):
        evaluate(net)


def test_the_weights_of_another_network_are_no_match(net: Path) -> None:
    build = read_build(net)
    write_build(net, replace(build, entry={**build.entry, "source": "torch:tiny:residual_of_other_weights"}))
    assert evaluate(net)["snr_db"] < 6


def test_files_that_the_description_does_not_describe_are_refused(accelerated: Path, net: Path) -> None:
    shutil.copy(accelerated / "net/build.json", net)
    stream_of(net, "first.0").write_bytes(b"other")
    with pytest.raises(DocumentError, match=r"net/steps/.*: is not the file that build.json describes: its SHA-256"):
        evaluate(net)
