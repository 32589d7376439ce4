"""ONNX Runtime's 8-bit operators, compared with ONNX Runtime up to one quantization step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from kit.cases import run_model

from .models import reference
from .test_operators import Network

IMAGE = (1, 6, 5, 7)


def operand(net: Network, *shape: int, constant: bool = False) -> list[str]:
    """Add 8-bit data with its scale and zero point."""
    data = net.rng.integers(0, 256, shape).astype(np.uint8)
    name = net.weight(data, "uint8") if constant else net.given(data)
    return [name, net.weight(net.rng.uniform(0.01, 0.03)), net.weight(net.rng.integers(100, 150), "uint8")]


def result_scale(net: Network, scale: float = 0.03) -> list[str]:
    """Add the scale and zero point of a result."""
    return [net.weight(scale), net.weight(120, "uint8")]


@pytest.mark.examples(5)
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("QLinearAveragePool", {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 1, 1]}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearSigmoid", {}),
        ("QLinearSoftmax", {"axis": 3, "opset": 13}),
        ("QLinearAdd", {}),
        ("QLinearMul", {}),
        ("QLinearConcat", {"axis": 1}),
        ("QGemm", {"transB": 1}),
        ("QGemm", {"alpha": 0.5}),
    ],
)
def test_results_differ_by_at_most_one_step(tmp_path: Path, operator: str, attributes: dict[str, Any]) -> None:
    net = Network(17, domains=("com.microsoft",))
    if operator == "QLinearConcat":
        inputs = [*result_scale(net), *operand(net, *IMAGE), *operand(net, *IMAGE)]
    elif operator == "QGemm":
        shape = (9, 12) if "transB" in attributes else (12, 9)
        weight = net.weight(net.rng.integers(-127, 128, shape), "int8")
        scales = net.weight(net.rng.uniform(0.001, 0.02, 9)), net.weight(np.zeros(9), "int8")
        bias = net.weight(net.rng.integers(-999, 999, 9), "int32")
        inputs = [*operand(net, 4, 12), weight, *scales, bias, *result_scale(net)]
    elif operator in ("QLinearAdd", "QLinearMul"):
        inputs = [*operand(net, *IMAGE), *operand(net, *IMAGE), *result_scale(net)]
    else:
        inputs = [*operand(net, *IMAGE), *result_scale(net, 0.004 if "S" in operator[7:] else 0.03)]
    net.nodes.append(helper.make_node(operator, inputs, ["y"], domain="com.microsoft", **attributes))
    model = net.model()
    del model.graph.output[:]
    model.graph.output.append(helper.make_empty_tensor_value_info("y"))
    (expected,) = reference(model, net.inputs)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, expected.shape))
    (found,) = run_model(model, net.inputs, tmp_path / "net.onnx")
    steps = np.abs(found.astype(int) - expected.astype(int))
    # ONNX Runtime's 8-bit softmax sums rounded exponentials.
    max_share = 0.2 if operator == "QLinearSoftmax" else 0.02
    assert found.dtype == np.uint8 and steps.max() <= 1 and (steps > 0).mean() < max_share
    assert len(np.unique(expected)) > 5, "the results have too few distinct values"
