"""Integer products of two computed 8-bit operands, as in quantized attention, compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anole.evaluate.engines import onnxruntime_session
from anole.targets.cpu.target import CpuTarget
from kit.cases import run_model

from .test_integer_products import workloads
from .test_operators import Network

INT8_CPU = CpuTarget({"kind": "cpu", "mcpu": "x86-64-v3", "features": ["avx2"], "threads": 2})
HEADS, STEP = 2, 0.02


def labels(net: Network, folder: Path) -> list[str]:
    """Return the labels of a network's layers on a target with 8-bit products."""
    return [workload.label for workload in workloads(net, folder, INT8_CPU)]


def last(net: Network) -> str:
    return str(net.nodes[-1].output[0])


def quantize(net: Network, data: str, scale: float, zero: int, dtype: str) -> str:
    parameters = net.weight(scale), net.weight(zero, dtype)
    net.add("QuantizeLinear", data, *parameters)
    net.add("DequantizeLinear", last(net), *parameters)
    return last(net)


def attention(net: Network, tokens: int, width: int, dtype: str, zeros: tuple[int, int, int]) -> None:
    """Add attention as ONNX Runtime's quantizer writes it: everything but the softmax reads and writes 8 bits."""

    def heads(zero: int, perm: list[int]) -> str:
        data = quantize(net, net.input(2, tokens, HEADS * width), 0.03, zero, dtype)
        net.add("Reshape", data, net.weight([2, tokens, HEADS, width], "int64"))
        net.add("Transpose", quantize(net, last(net), 0.03, zero, dtype), perm=perm)
        return quantize(net, last(net), 0.03, zero, dtype)

    query, key, value = (
        heads(zero, perm) for zero, perm in zip(zeros, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    net.add("MatMul", query, key)
    net.add("Mul", quantize(net, last(net), 0.2, 3, dtype), net.weight(width**-0.5))
    net.add("Softmax", last(net), axis=-1)
    net.add("MatMul", quantize(net, last(net), 1 / 255, 0 if dtype == "uint8" else -128, dtype), value)
    quantize(net, last(net), STEP, zeros[2], dtype)


@pytest.mark.examples(1)
@pytest.mark.parametrize(
    ("tokens", "width", "dtype", "zeros"),
    [(20, 16, "uint8", (120, 130, 128)), (19, 10, "uint8", (101, 128, 7)), (33, 12, "int8", (0, -5, 0))],
)
def test_qdq_attention_differs_by_at_most_one_step(
    tmp_path: Path, tokens: int, width: int, dtype: str, zeros: tuple[int, int, int]
) -> None:
    net = Network()
    attention(net, tokens, width, dtype, zeros)
    padded_width, padded_tokens = (-(-each // 4) * 4 for each in (width, tokens))
    assert labels(net, tmp_path) == [
        f"batch_matmul 4x {tokens}x{padded_width}x{tokens} transposed uint8",
        f"batch_matmul 4x {tokens}x{padded_tokens}x{width} uint8",
    ]
    model = net.model()
    del model.graph.output[:-1]
    session = onnxruntime_session(model.SerializeToString(), 1, joins=False)
    (expected,), (found,) = session.run(None, dict(net.inputs)), run_model(model, net.inputs, tmp_path / "net.onnx")
    steps = np.abs(found - expected) / STEP
    assert np.mean(steps < 1.01) > 0.999 and np.mean(steps < 0.01) > 0.95


@pytest.mark.examples(3)
@pytest.mark.parametrize("inner", [12, 30, 600])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_integer_matmul_of_computed_operands_is_exact(tmp_path: Path, inner: int, is_transposed: bool) -> None:
    net = Network(10)

    def operand(*shape: int) -> str:
        return net.given(net.rng.integers(0, 256, shape).astype(np.uint8))

    def right() -> str:
        if not is_transposed:
            return operand(2, inner, 7)
        net.add("Transpose", operand(2, 7, inner), perm=[0, 2, 1])
        return last(net)

    point, zeros = net.given(np.array(5, np.uint8)), [net.weight(each, "uint8") for each in (9, 200, 120)]
    net.add("MatMulInteger", operand(2, 3, inner), right(), zeros[0], point)
    net.add("MatMulInteger", operand(2, 3, inner), right())
    scales = [net.weight(each) for each in (0.03, 0.02, 2.0)]
    operands = operand(2, 3, inner), scales[0], zeros[0], right(), scales[1], zeros[1]
    net.add("QLinearMatMul", *operands, scales[2], zeros[2])
    net.check(tmp_path, 0)
    label = f"batch_matmul 2x 3x{-(-inner // 4) * 4}x7{' transposed' * is_transposed} uint8"
    assert labels(net, tmp_path) == [label] * 3


def test_row_scales_of_a_square_weight_are_not_mistaken_for_column_scales(tmp_path: Path) -> None:
    net = Network(13)
    data = quantize(net, net.input(3, 8), 0.02, 120, "uint8")
    weight, scales = net.weight(net.rng.integers(-127, 128, (8, 8)), "int8"), net.rng.uniform(0.001, 0.1, 8)
    net.add("DequantizeLinear", weight, net.weight(scales), net.weight(np.zeros(8), "int8"), axis=0)
    net.add("MatMul", data, last(net))
    model = net.model()
    del model.graph.output[:-1]
    session = onnxruntime_session(model.SerializeToString(), 1, joins=False)
    (expected,), (found,) = session.run(None, dict(net.inputs)), run_model(model, net.inputs, tmp_path / "net.onnx")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
