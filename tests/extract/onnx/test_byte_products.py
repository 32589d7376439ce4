"""Quantized attention is computed in bytes, to one step of what ONNX defines, in each of the forms of files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from anole.config.entries import ModelSpec
from anole.evaluate.engines import onnxruntime_session
from anole.extract.graph import find_layers, for_low_precision
from anole.extract.load import load_model
from anole.targets.cpu.target import CpuTarget
from kit.cases import run_model

from .test_operators import Network

BYTES = CpuTarget({"kind": "cpu", "mcpu": "x86-64-v3", "features": ["avx2"], "threads": 2})
HEADS, STEP = 2, 0.02


def kinds(net: Network, folder: Path) -> list[str]:
    """Return the labels of the layers of a network on a target that multiplies bytes."""
    onnx.save(net.model(), folder / "net.onnx")
    imported = load_model(ModelSpec("net", f"onnx:{folder / 'net.onnx'}"))
    return [layer.workload.label for layer in find_layers(for_low_precision(imported, BYTES))]


def last(net: Network) -> str:
    return str(net.nodes[-1].output[0])


def rounded(net: Network, data: str, scale: float, zero: int, dtype: str) -> str:
    parameters = net.weight(scale), net.weight(zero, dtype)
    net.add("QuantizeLinear", data, *parameters)
    net.add("DequantizeLinear", last(net), *parameters)
    return last(net)


def attention(net: Network, tokens: int, width: int, dtype: str, zeros: tuple[int, int, int]) -> None:
    """As ONNX Runtime's quantizer writes it: everything but the softmax reads and writes 8 bits."""

    def heads(zero: int, perm: list[int]) -> str:
        data = rounded(net, net.input(2, tokens, HEADS * width), 0.03, zero, dtype)
        net.add("Reshape", data, net.weight([2, tokens, HEADS, width], "int64"))
        net.add("Transpose", rounded(net, last(net), 0.03, zero, dtype), perm=perm)
        return rounded(net, last(net), 0.03, zero, dtype)

    query, key, value = (
        heads(zero, perm) for zero, perm in zip(zeros, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    net.add("MatMul", query, key)
    net.add("Mul", rounded(net, last(net), 0.2, 3, dtype), net.weight(width**-0.5))
    net.add("Softmax", last(net), axis=-1)
    net.add("MatMul", rounded(net, last(net), 1 / 255, 0 if dtype == "uint8" else -128, dtype), value)
    rounded(net, last(net), STEP, zeros[2], dtype)


@pytest.mark.examples(1)
@pytest.mark.parametrize(
    ("tokens", "width", "dtype", "zeros"),
    [(20, 16, "uint8", (120, 130, 128)), (19, 10, "uint8", (101, 128, 7)), (33, 12, "int8", (0, -5, 0))],
)
def test_attention_in_qdq_form_is_one_step_from_its_definition(
    tmp_path: Path, tokens: int, width: int, dtype: str, zeros: tuple[int, int, int]
) -> None:
    net = Network()
    attention(net, tokens, width, dtype, zeros)
    words, more = (-(-each // 4) * 4 for each in (width, tokens))
    assert kinds(net, tmp_path) == [
        f"batch_matmul 4x {tokens}x{words}x{tokens} transposed uint8",
        f"batch_matmul 4x {tokens}x{more}x{width} uint8",
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
def test_operators_on_bytes_are_exact_whatever_is_computed(tmp_path: Path, inner: int, is_transposed: bool) -> None:
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
    sides = operand(2, 3, inner), scales[0], zeros[0], right(), scales[1], zeros[1]
    net.add("QLinearMatMul", *sides, scales[2], zeros[2])
    net.check(tmp_path, 0)
    label = f"batch_matmul 2x 3x{-(-inner // 4) * 4}x7{' transposed' * is_transposed} uint8"
    assert kinds(net, tmp_path) == [label] * 3


def test_scales_of_the_rows_of_a_square_weight_are_not_taken_for_those_of_columns(tmp_path: Path) -> None:
    net = Network(13)
    data = rounded(net, net.input(3, 8), 0.02, 120, "uint8")
    weight, scales = net.weight(net.rng.integers(-127, 128, (8, 8)), "int8"), net.rng.uniform(0.001, 0.1, 8)
    net.add("DequantizeLinear", weight, net.weight(scales), net.weight(np.zeros(8), "int8"), axis=0)
    net.add("MatMul", data, last(net))
    model = net.model()
    del model.graph.output[:-1]
    session = onnxruntime_session(model.SerializeToString(), 1, joins=False)
    (expected,), (found,) = session.run(None, dict(net.inputs)), run_model(model, net.inputs, tmp_path / "net.onnx")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
