"""The reference for quantized files: only products are fused with the dequantization of their operands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from anole.config.entries import ModelSpec
from anole.evaluate.quantized_reference import _unfused_file, unfused_engine

RNG = np.random.default_rng(0)


def write_model(path: Path) -> ModelSpec:
    """Write a model that adds a product to its quantized input, and return its entry."""
    numbers = {
        "scale": np.float32(0.05),
        "zero": np.uint8(120),
        "weight": RNG.integers(-127, 128, (8, 8)).astype(np.int8),
        "none": np.int8(0),
    }
    pairs = [
        ("QuantizeLinear", ["x", "scale", "zero"], "q"),
        ("DequantizeLinear", ["q", "scale", "zero"], "data"),
        ("DequantizeLinear", ["weight", "scale", "none"], "matrix"),
        ("MatMul", ["data", "matrix"], "product"),
        ("Add", ["product", "data"], "sum"),
    ]
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, [output]) for operator, inputs, output in pairs],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 8])],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [3, 8])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return ModelSpec("net", f"onnx:{path}", {})


def test_only_products_read_dequantized_values_directly(tmp_path: Path) -> None:
    nodes = onnx.load_from_string(_unfused_file(write_model(tmp_path / "net.onnx"))).graph.node
    made = {node.output[0]: node for node in nodes}
    product, total = made["product"], made["sum"]
    assert list(product.input) == ["data", "matrix"]
    assert total.input[0] == "product" and made[total.input[1]].op_type == "Sum"
    assert list(made[total.input[1]].input) == ["data"]


def test_the_outputs_match_the_file(tmp_path: Path) -> None:
    model = write_model(tmp_path / "net.onnx")
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    weight = numpy_helper.to_array(onnx.load(tmp_path / "net.onnx").graph.initializer[2]).astype(np.float32)
    data = (np.clip(np.round(x / np.float32(0.05)) + 120, 0, 255) - 120) * np.float32(0.05)
    with unfused_engine(model, [x], 1) as engine:
        np.testing.assert_allclose(engine.compute()[0], data @ (weight * np.float32(0.05)) + data, 1e-5, 1e-5)
