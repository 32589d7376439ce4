"""Products with quantized weights only: weights stay stored as integers, or are dequantized, with equal results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from anole.config.entries import ModelSpec
from anole.errors import ExtractError
from anole.extract.graph import find_layers, for_target
from anole.extract.load import load_model
from anole.targets import get_target
from anole.targets.base import Target
from anole_cuda.settings import describe_cuda

from .models import value
from .test_integer_products import dequantize
from .test_operators import Network

CPU = get_target({"kind": "cpu", "mcpu": "x86-64", "threads": 2})


def labels(net: Network, folder: Path, target: Target = CPU) -> list[str]:
    """Return the workloads of a network on a target."""
    model = net.model()
    names = [output.name for output in model.graph.output]
    del model.graph.output[:]
    model.graph.output.extend(map(value, names))
    onnx.save(model, folder / "net.onnx")
    imported = load_model(ModelSpec("net", f"onnx:{folder / 'net.onnx'}"))
    return [layer.workload.label for layer in find_layers(for_target(imported, target))]


def product(
    net: Network,
    dtype: str,
    scales: tuple[int, ...],
    rows: int = 2,
    transposed: bool = False,
    zero: bool = True,
    **attributes: Any,
) -> None:
    """Add a product of `rows` x 64 data with quantized weights, whose scales have the shape `scales`."""
    rng, info = net.rng, np.iinfo(dtype)
    weight = rng.integers(info.min, info.max, (40, 64) if transposed else (64, 40), endpoint=True)
    zeros = rng.integers(info.min, info.max, scales, endpoint=True) if zero else np.zeros(scales)
    found = dequantize(
        net, net.weight(weight, dtype), rng.uniform(0.001, 0.01, scales), net.weight(zeros, dtype), **attributes
    )
    if transposed:
        net.add("Gemm", net.input(rows, 64), found, net.weight(rng.standard_normal(40)), transB=1)
    else:
        net.add("MatMul", net.input(rows, 64), found)


@pytest.mark.parametrize(
    ("build", "label"),
    [
        (lambda net: product(net, "int8", (40,), zero=False, axis=1), "dense 64->40 weights int8 n2"),
        (lambda net: product(net, "uint8", (40,), axis=1), "dense 64->40 weights uint8 n2"),
        (lambda net: product(net, "int8", (), zero=False), "dense 64->40 weights int8 n2"),
        (lambda net: product(net, "int8", (40,), transposed=True, zero=False, axis=0), "dense 64->40 weights int8 n2"),
        (lambda net: product(net, "uint8", (4, 40), axis=0, block_size=16), "dense 64->40 weights uint8x16 n2"),
        (lambda net: product(net, "int8", (40, 2), 1, True, axis=1, block_size=32), "dense 64->40 weights uint8x32"),
        # A scale for each input feature, and too many rows.
        (lambda net: product(net, "int8", (64,), axis=0), "dense 64->40 n2"),
        (lambda net: product(net, "int8", (40,), 17, axis=1), "dense 64->40 n17"),
    ],
)
def test_dequantized_weights_stay_low_precision_if_beneficial(
    tmp_path: Path, build: Callable[[Network], None], label: str
) -> None:
    net = Network(21)
    build(net)
    net.check(tmp_path, 1e-5, only_last=True)
    assert labels(net, tmp_path) == [label]
    assert "weights" not in labels(net, tmp_path, get_target(describe_cuda(arch="sm_90")))[0]


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_4_bit_constants(tmp_path: Path, dtype: str) -> None:
    net, info = Network(21), ml_dtypes.iinfo(dtype)
    shape, blocks = (64, 40), (2, 40)
    weight, zeros = (net.rng.integers(info.min, info.max, each, endpoint=True) for each in (shape, blocks))
    scales = net.rng.uniform(0.001, 0.01, blocks)
    attributes = {"axis": 0, "block_size": 32}
    found = dequantize(net, net.weight(weight, dtype), scales, net.weight(zeros, dtype), **attributes)
    net.add("MatMul", net.input(1, 64), found)
    net.check(tmp_path, 1e-5, only_last=True)
    assert labels(net, tmp_path) == ["dense 64->40 weights uint4x32"]


def add_matmul_nbits(net: Network, bits: int = 4, block: int = 32, inputs: int = 64, **given: Any) -> None:
    """Add a MatMulNBits; `given` replaces inputs, by name, and attributes."""
    outputs, blocks = 12, -(-inputs // block)
    packed = net.rng.integers(0, 256, (outputs, blocks, block * bits // 8))
    scales = net.rng.uniform(0.001, 0.01, given.pop("scales", (outputs, blocks)))
    operands = [given.pop("B", "") or net.weight(packed, "uint8"), net.weight(scales)]
    names = [given.pop(name, "") for name in ("zeros", "g_idx", "bias")]
    while names and not names[-1]:
        names.pop()
    sizes = {"K": inputs, "N": outputs, "bits": bits, "block_size": block, **given}
    net.add("MatMulNBits", net.input(1, 3, inputs), *operands, *names, domain="com.microsoft", **sizes)


@pytest.mark.parametrize(
    ("build", "label"),
    [
        (lambda net: add_matmul_nbits(net), "int4x32"),
        (lambda net: add_matmul_nbits(net, 8, 16, bias=net.weight(net.rng.standard_normal(12))), "int8x16"),
        (lambda net: add_matmul_nbits(net, zeros=net.weight(net.rng.integers(0, 256, (12, 1)), "uint8")), "uint4x32"),
        (lambda net: add_matmul_nbits(net, 8, 64, zeros=net.weight([7] * 12, "uint8")), "uint8"),
        # An incomplete last block, and zero points that are not integers.
        (lambda net: add_matmul_nbits(net, inputs=50), ""),
        (lambda net: add_matmul_nbits(net, zeros=net.weight(net.rng.uniform(0, 15, (12, 2)))), ""),
    ],
)
def test_matmul_nbits(tmp_path: Path, build: Callable[[Network], None], label: str) -> None:
    net = Network(17, ["com.microsoft"])
    build(net)
    net.check(tmp_path, 1e-5)
    (found,) = labels(net, tmp_path)
    assert found.partition(" weights ")[2].removesuffix(" n3") == label


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bits": 2}, "bits: found 2; allowed: 4, 8"),
        ({"block_size": 48}, "block_size: found 48; allowed: 16, 32, 64, 128, 256"),
        ({"N": 0}, "K and N: found 64 and 0; each must be at least 1"),
        ({"zeros": "x0"}, "input zero_points must be constant"),
        ({"K": 128}, r"B: found shape \[12, 2, 16\]; expected 12 x 64 values"),
        ({"scales": (12, 3)}, r"scales: found shape \[12, 3\]; expected 12 x 2 values"),
        ({"g_idx": "w0"}, "g_idx, which reorders input features, is not supported"),
        ({"B": "x0"}, "input B must be constant"),
    ],
)
def test_invalid_matmul_nbits_are_rejected(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    net = Network(17, ["com.microsoft"])
    add_matmul_nbits(net, **given)
    with pytest.raises(ExtractError, match=f"net.onnx: MatMulNBits '0_MatMulNBits': {message}"):
        labels(net, tmp_path)
