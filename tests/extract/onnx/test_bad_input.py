"""ONNX files that cannot be built: one message, exit code 2, and no files left."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
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
    """Return a model with a matrix product, a ReLU and a sum."""
    graph = """(float[batch,4] x) => (float[] y) {
        [project] product = MatMul (x, weight)
        [rectify] scores = Relu (product)
        [double] y = Add (scores, scores)
    }"""
    return model_of(graph, weight=np.ones((4, 4), np.float32))


def move_weights_outside(model: ModelProto) -> None:
    Path("../weights.data").write_bytes(bytes(64))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../weights.data")


def change_last(operator: str, model: ModelProto) -> None:
    node = model.graph.node[2]
    node.op_type = operator
    del node.input[1:]
    if operator == "NonZero":
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64


CASES: dict[str, tuple[Callable[[ModelProto], Any], dict[str, Any], str]] = {
    "weights outside": (move_weights_outside, {}, "../weights.data"),
    "no converter": (
        partial(change_last, "RandomNormalLike"),
        {},
        "net.onnx: RandomNormalLike 'double': there is no converter for this operator. To build the part before "
        "them, set the model's `outputs: [scores]`",
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
    "a dynamic dimension": (lambda m: None, {"dims": {}}, "input x has the dynamic shape [batch, 4]; fix it in "),
    "a value for no input": (
        lambda m: None,
        {"inputs": {"z": {"value": 1}}},
        "inputs.z: net.onnx has no such input; allowed: x",
    ),
}


def extract(change: Callable[[ModelProto], Any], entry: dict[str, Any]) -> Result:
    """Change the model and extract it in the working directory."""
    model = make()
    change(model)
    Path("net.onnx").write_bytes(model.SerializeToString())
    networks = {"net": {"source": "onnx:net.onnx", "dims": {"batch": 2}, **entry}}
    builds = [{"model": "net", "target": "cpu"}]
    text = json.dumps({"models": networks, "targets": {"cpu": {"kind": "cpu"}}, "builds": builds})
    Path("models.yaml").write_text(text)
    return CliRunner().invoke(main, ["extract", "net", "--target", "cpu"])


@pytest.mark.parametrize("name", CASES)
def test_unsupported_models_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    change, entry, message = CASES[name]
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    result = extract(change, entry)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert result.stderr.startswith("anole: mode") and message in result.stderr
    assert sorted(path.name for path in project.iterdir()) == ["models.yaml", "net.onnx"]


def test_suggested_outputs_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = extract(partial(change_last, "NonZero"), {"outputs": ["scores"]})
    assert result.exit_code == 0, result.output
    found = json.loads(layout.manifest_path("net", "cpu").read_text())
    assert [task["layers"] for task in found["tasks"]] == [["project"]] and found["prepared"] == []
