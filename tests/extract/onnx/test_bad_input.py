"""A file that cannot be built gives one message and exit code 2, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from onnx import ModelProto, TensorProto

from anole.__main__ import main
from anole.documents import layout

from .models import model_of


def make() -> ModelProto:
    """Return a product, a rectifier and a row of the values above zero."""
    graph = """(float[batch,4] x) => (float[] y) {
        [project] product = MatMul (x, weight)
        [rectify] scores = Relu (product)
        [double] y = Add (scores, scores)
    }"""
    return model_of(graph, weight=np.ones((4, 4), np.float32))


def put_outside(model: ModelProto) -> None:
    Path("../weights.data").write_bytes(bytes(64))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../weights.data")


def change_last(operator: str) -> Callable[[ModelProto], None]:
    def change(model: ModelProto) -> None:
        node = model.graph.node[2]
        node.op_type = operator
        del node.input[1:]
        if operator == "NonZero":
            model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64

    return change


CASES: dict[str, tuple[Callable[[ModelProto], Any], dict[str, Any], str]] = {
    "weights outside": (put_outside, {}, "../weights.data"),
    "no converter": (
        change_last("RandomNormalLike"),
        {},
        "net.onnx: RandomNormalLike 'double': there is no converter for this operator. To build what is before, give "
        "the model `outputs: [scores]`",
    ),
    "an unknown output": (
        lambda m: None,
        {"outputs": ["score"]},
        "outputs[0]: found 'score', which is not computed by an operator",
    ),
    "an unknown dimension": (
        lambda m: None,
        {"dims": {"batch": 2, "butch": 1}},
        "dims.butch: net.onnx has no such dynamic dimension; did you mean 'batch'",
    ),
    "a dimension that is open": (lambda m: None, {"dims": {}}, "input x has the dynamic shape [batch, 4]; fix it in "),
    "a value for no input": (
        lambda m: None,
        {"inputs": {"z": {"value": 1}}},
        "inputs.z: net.onnx has no such input; allowed: x",
    ),
}


def extract(break_: Callable[[ModelProto], Any], entry: dict[str, Any]) -> Result:
    """Extract the model, after something is done to it, in the working directory."""
    model = make()
    break_(model)
    Path("net.onnx").write_bytes(model.SerializeToString())
    networks = {"net": {"source": "onnx:net.onnx", "dims": {"batch": 2}, **entry}}
    builds = [{"model": "net", "target": "cpu"}]
    text = json.dumps({"models": networks, "targets": {"cpu": {"kind": "cpu"}}, "builds": builds})
    Path("models.yaml").write_text(text)
    return CliRunner().invoke(main, ["extract", "net", "--target", "cpu"])


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_built_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    break_, entry, message = CASES[name]
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    result = extract(break_, entry)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert result.stderr.startswith("anole: mode") and message in result.stderr
    assert sorted(path.name for path in project.iterdir()) == ["models.yaml", "net.onnx"]


def test_what_the_message_advises_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = extract(change_last("NonZero"), {"outputs": ["scores"]})
    assert result.exit_code == 0, result.output
    found = json.loads(layout.manifest_path("net", "cpu").read_text())
    assert [task["layers"] for task in found["tasks"]] == [["project"]] and found["prepared"] == []
