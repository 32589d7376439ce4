"""Selection of a part of an ONNX file: the outputs and input values of a model's entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from anole.config.entries import ModelSpec
from anole.errors import ExtractError
from anole.evaluate.engines import onnxruntime_session, reference_engines
from anole.extract.load import load_model
from anole.extract.onnx.selection import serialize_part

from ..passes.building import outputs
from .models import model_of

X = np.random.default_rng(0).standard_normal((1, 2, 5)).astype(np.float32)


BODIES = {
    "squares": "() => (float[] s) {s = Mul (features, features)}",
    "size": "() => (int64[] n) {n = Shape (features)}",
}


def write(**settings: Any) -> None:
    """Write a detector: features, scores that depend on an integer input, and non-maximum suppression."""
    rng = np.random.default_rng(1)
    weights = {
        "wide": rng.standard_normal((2, 2)).astype(np.float32),
        "boxes": rng.random((1, 5, 4)).astype(np.float32),
        "limit": np.array([3]),
        "rate": np.array(16000),
    }
    branches = {name: f"then_branch = then {body}, else_branch = other {body}" for name, body in BODIES.items()}
    graph = f"""(float[n,2,5] x, int64 sr, float[1] unused) => (int64[] kept, int64[] size) {{
        [project] features = MatMul (wide, x)
        is_fast = Equal (sr, rate)
        [rates] squares = If <{branches["squares"]}> (is_fast)
        scores = Sigmoid (squares)
        [nms] kept = NonMaxSuppression (boxes, scores, limit)
        size = If <{branches["size"]}> (is_fast)
        {"[custom] y = custom.Wobble (kept)" if settings.get("custom") else ""}
    }}"""
    proto = model_of(graph, domains=["custom"], **weights)
    if settings.get("external"):
        onnx.external_data_helper.convert_model_to_external_data(proto, location="net.data", size_threshold=0)
    Path("sub").mkdir(exist_ok=True)
    onnx.save(proto, "sub/net.onnx")


def model(**settings: Any) -> ModelSpec:
    return ModelSpec("net", "onnx:sub/net.onnx", {"x": (1, 2, 5)}, **settings)


def error_of(spec: ModelSpec) -> str:
    with pytest.raises(ExtractError) as caught:
        load_model(spec)
    assert str(caught.value).startswith("model net: ") and "\n" not in str(caught.value)
    return str(caught.value)


def build(spec: ModelSpec, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    imported = load_model(spec)
    assert [info.name for info in imported.outputs] == list(spec.outputs)
    return outputs(imported.module, *inputs)


@pytest.mark.parametrize("settings", [{}, {"external": True}, {"custom": True}])
def test_a_network_ends_at_the_outputs_of_its_entry(project: Path, settings: dict[str, bool]) -> None:
    write(**settings)
    spec = model(outputs=("scores", "features"), values={"sr": 16000})
    found = build(spec, X)
    with reference_engines(spec, [X], 1) as (reference,):
        expected = reference.compute()
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    weights = numpy_helper.to_array(onnx.load("sub/net.onnx").graph.initializer[0])
    np.testing.assert_allclose(expected[1], weights @ X, rtol=1e-5)


def test_only_dependencies_of_the_outputs_are_kept(project: Path) -> None:
    write()
    part = onnx.load_from_string(serialize_part(model(outputs=("features",))) or b"")
    assert [node.op_type for node in part.graph.node] == ["MatMul"]
    assert [each.name for each in part.graph.input] == ["x"]
    assert [each.name for each in part.graph.initializer] == ["wide"]
    # Branches capture outer values.
    part = onnx.load_from_string(serialize_part(model(outputs=("squares",))) or b"")
    assert [node.op_type for node in part.graph.node] == ["MatMul", "Equal", "If"]
    session = onnxruntime_session(part.SerializeToString(), 1)
    assert [each.name for each in session.get_inputs()] == ["x", "sr"]
    assert serialize_part(model()) is None


def test_unsupported_operators_are_reported_with_possible_outputs(project: Path) -> None:
    write()
    message = error_of(model(values={"sr": 16000}))
    assert "NonMaxSuppression 'nms': the shape of its output depends on the data" in message
    assert "`outputs: [scores" in message
    assert build(model(outputs=("scores",), values={"sr": 8000}), X)[0].shape == (1, 2, 5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"outputs": ("score",)},
            "outputs: found 'score', which no operator of sub/net.onnx computes; did you mean 'scores'?",
        ),
        ({"outputs": ("x",)}, "found 'x', which no operator"),
        ({"values": {"rs": 1}}, "inputs: found 'rs', which is not an input of sub/net.onnx"),
        ({"values": {"rate": 1}}, "is not an input"),
        ({"values": {"sr": 0.5}}, "input sr: found value 0.5; the file declares int64"),
        ({"values": {"sr": [1]}}, "input sr: found value [1] of shape [1]; the file has []"),
    ],
)
def test_unknown_names_and_invalid_values_are_reported(project: Path, settings: dict[str, Any], message: str) -> None:
    write()
    assert message in error_of(model(**settings))
