"""The engines that a build is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from anole.config.entries import ModelSpec
from anole.errors import BuildError
from anole.evaluate.engines import onnxruntime_engine, onnxruntime_session, precision_of, torch_engine, torch_network

from ..extract.onnx.models import model_of


def test_a_model_that_onnx_runtime_cannot_load_is_a_build_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(BuildError, match=r"model\.onnx: ONNX Runtime .* cannot load it"):
        onnxruntime_engine(path, [], 1)


@pytest.mark.parametrize(
    ("operators", "precision"),
    [
        (["Conv", "Relu"], "float32"),
        (["QuantizeLinear", "DequantizeLinear", "Conv"], "int8"),
        (["DynamicQuantizeLinear", "MatMulInteger"], "int8"),
        (["QLinearConv"], "int8"),
        (["DequantizeLinear", "MatMul"], "float32, weights in few bits"),
        (["MatMulNBits"], "float32, weights in few bits"),
    ],
)
def test_the_operators_determine_the_precision(operators: list[str], precision: str) -> None:
    assert precision_of(operators) == precision


def test_onnx_runtime_computes_8_bit_products_exactly() -> None:
    """By default, processors without VNNI add pairs of products in 16 bits, which 255 * 127 * 2 exceeds."""
    weight = np.full((64, 8), 127, np.int8)
    model = model_of("(uint8[3,64] x) => (int32[3,8] y) {y = MatMulInteger (x, w)}", 18, w=weight)
    x = np.full((3, 64), 255, np.uint8)
    (found,) = onnxruntime_session(model.SerializeToString(), 1).run(None, {"x": x})
    np.testing.assert_array_equal(found, x.astype(int) @ weight.astype(int))


def test_weights_may_share_a_zero_point() -> None:
    """The option that makes products exact on every processor fails on such a file."""
    weights: dict[str, Any] = {"scale": np.float32(0.1), "data_zero": np.uint8(7), "zero": np.int8(0)}
    weights |= {f"w{i}": np.random.default_rng(i).integers(-9, 9, (4, 4)).astype(np.int8) for i in range(2)}
    graph = """(float[2,4] x) => (float[2,4] y0, float[2,4] y1) {
        q = QuantizeLinear (x, scale, data_zero)
        d = DequantizeLinear (q, scale, data_zero)
        m0 = DequantizeLinear (w0, scale, zero)
        y0 = MatMul (d, m0)
        m1 = DequantizeLinear (w1, scale, zero)
        y1 = MatMul (d, m1)
    }"""
    model = model_of(graph, **weights)
    found = onnxruntime_session(model.SerializeToString(), 1).run(None, {"x": np.ones((2, 4), np.float32)})
    assert [each.shape for each in found] == [(2, 4)] * 2


class Encoder(torch.nn.Module):
    """A network that writes to its input and ignores padded positions."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return self.encoder(x, src_key_padding_mask=torch.tensor([[False] * 4 + [True] * 2]))


def test_torch_computes_padded_positions_and_preserves_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "padded.py").write_text("from tests.evaluate.test_engines import Encoder\n")
    monkeypatch.chdir(tmp_path)
    samples = [[np.random.default_rng(seed).standard_normal((1, 6, 16)).astype(np.float32)] for seed in (0, 1)]
    model = ModelSpec("net", "torch:padded:Encoder", {"x": (1, 6, 16)})
    network, arguments = torch_network(model, samples[0], 1)
    found = torch_engine(network, arguments).compute_each(samples)
    # In training mode, without dropout, the fast path is not used.
    for (x,), (output,) in zip(samples, found, strict=True):
        expected = network.train()(torch.tensor(x)).detach().numpy()
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
