"""Low-precision references: they differ from float32 references, but only by rounding errors."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from anole.config.entries import ModelSpec
from anole.evaluate.comparison import compare_outputs
from anole.evaluate.engines import export_onnx, reference_engines
from anole.evaluate.low_precision import low_precision_engine
from anole.extract.torch import make_network
from anole.targets.cpu.settings import describe_cpu

TINY = ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)})


def opset_11_model() -> onnx.ModelProto:
    """Return a network with opset 11, whose `Cast` does not support bfloat16."""
    rng, image = np.random.default_rng(0), [1, 3, 16, 16]
    weights = [rng.standard_normal((8, 3, 3, 3), np.float32), rng.standard_normal((4, 8, 1, 1), np.float32)]
    steps = [("Conv", ["x", "w0"], "a"), ("Relu", ["a"], "b"), ("Conv", ["b", "w1"], "y")]
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, [output]) for operator, inputs, output in steps],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, image)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 14, 14])],
        [numpy_helper.from_array(weight, f"w{number}") for number, weight in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)


@pytest.mark.examples(1)
@pytest.mark.parametrize("scheme", ["torch", "onnx", "old onnx"])
def test_low_precision_is_close_to_float32(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(Path(__file__).parents[1] / "tiny_networks.py", tmp_path / "tiny.py")
    monkeypatch.chdir(tmp_path)
    model = TINY if scheme == "torch" else ModelSpec("net", "onnx:net.onnx", {})
    samples = [[np.random.default_rng(seed).standard_normal((1, 3, 16, 16), dtype=np.float32)] for seed in range(3)]
    if scheme == "onnx":
        export_onnx(make_network(TINY), (torch.from_numpy(samples[0][0]),), tmp_path / "net.onnx")
    if scheme == "old onnx":
        onnx.save(opset_11_model(), "net.onnx")
    if scheme != "torch":
        monkeypatch.setitem(sys.modules, "torch", None)
    bf16 = {**describe_cpu(threads=1), "precision": "bf16", "weights": "int8"}
    with reference_engines(model, samples[0], 1) as plain, low_precision_engine(model, bf16, samples[0], 1) as rounded:
        found = compare_outputs(rounded.compute_each(samples), plain[0].compute_each(samples))
    assert 1e-4 < found.error < 5e-2
