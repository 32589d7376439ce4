"""Low-precision references differ from float32 only by rounding errors, or fuse only products of quantized files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from anole.config.entries import ModelSpec
from anole.evaluate.comparison import compare_outputs
from anole.evaluate.correctness.low_precision import _unfused_file, low_precision_engine, unfused_engine
from anole.evaluate.engines import export_onnx, reference_engines
from anole.extract.torch import make_network
from anole.targets.cpu.settings import describe_cpu

from ...extract.conftest import project as project
from ...extract.onnx.models import model_of

TINY = ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)})


def opset_11_model() -> onnx.ModelProto:
    """Return a network with opset 11, whose `Cast` does not support bfloat16."""
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((8, 3, 3, 3), np.float32), rng.standard_normal((4, 8, 1, 1), np.float32)
    graph = "(float[1,3,16,16] x) => (float[1,4,14,14] y) {a = Conv (x, first) b = Relu (a) y = Conv (b, second)}"
    return model_of(graph, 11, first=first, second=second)


@pytest.mark.examples(1)
@pytest.mark.parametrize("scheme", ["torch", "onnx", "old onnx"])
def test_low_precision_is_close_to_float32(scheme: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TINY if scheme == "torch" else ModelSpec("net", "onnx:net.onnx", {})
    samples = [[np.random.default_rng(seed).standard_normal((1, 3, 16, 16), dtype=np.float32)] for seed in range(3)]
    if scheme == "onnx":
        export_onnx(make_network(TINY), (torch.from_numpy(samples[0][0]),), project / "net.onnx")
    if scheme == "old onnx":
        onnx.save(opset_11_model(), "net.onnx")
    if scheme != "torch":
        monkeypatch.setitem(sys.modules, "torch", None)
    bf16 = {**describe_cpu(threads=1), "precision": "bf16", "weights": "int8"}
    with reference_engines(model, samples[0], 1) as plain, low_precision_engine(model, bf16, samples[0], 1) as rounded:
        found = compare_outputs(rounded.compute_each(samples), plain[0].compute_each(samples))
    assert 1e-4 < found.error < 5e-2


RNG = np.random.default_rng(0)


def write_model(path: Path) -> ModelSpec:
    """Write a model that adds a product to its quantized input, and return its entry."""
    numbers: dict[str, Any] = {
        "scale": np.float32(0.05),
        "zero": np.uint8(120),
        "weight": RNG.integers(-127, 128, (8, 8)).astype(np.int8),
        "none": np.int8(0),
    }
    graph = """(float[3,8] x) => (float[3,8] sum) {
        q = QuantizeLinear (x, scale, zero)
        data = DequantizeLinear (q, scale, zero)
        matrix = DequantizeLinear (weight, scale, none)
        product = MatMul (data, matrix)
        sum = Add (product, data)
    }"""
    onnx.save(model_of(graph, **numbers), path)
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
