"""Exact products of 8-bit integers in float32, split where sums would exceed float32's exact integers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from anole.config.entries import ModelSpec
from anole.extract.graph import find_layers, for_target
from anole.extract.load import load_model
from anole.extract.passes.exact_sums import exact_ranges
from anole.targets.cpu.target import CpuTarget
from anole.task import BatchMatmul, Workload

from .test_operators import Network

PLAIN = CpuTarget({"kind": "cpu", "mcpu": "x86-64", "threads": 2})
UINT8 = np.iinfo(np.uint8)


def workloads(net: Network, folder: Path, target: CpuTarget = PLAIN) -> list[Workload]:
    """Return the workload of each call of a network on a target, by default one without 8-bit products."""
    onnx.save(net.model(), folder / "net.onnx")
    imported = load_model(ModelSpec("net", f"onnx:{folder / 'net.onnx'}"))
    return [layer.workload for layer in find_layers(for_target(imported, target))]


def largest(*shape: int) -> NDArray[np.uint8]:
    """Return data of the maximum value, which is odd, for the largest sums."""
    return np.full(shape, UINT8.max, np.uint8)


def convolution(net: Network, channels: int, weight: NDArray[Any], *image: int, **attributes: Any) -> None:
    data = net.given(largest(1, channels, *image))
    net.add("ConvInteger", data, net.weight(weight, "int8"), **attributes)


def split_channels(channels: int) -> Callable[[Network], None]:
    """Make a network with a convolution whose channels are split only as often as exactness requires."""
    return lambda net: convolution(net, channels, np.full((3, channels, 1, 1), 127), 2, 3)


def convolutions_of_any_kind(net: Network) -> None:
    """Add convolutions; a window that is too large, and groups that would need a split, are computed in integers."""
    rng = net.rng
    convolution(net, 4, rng.integers(-128, 128, (6, 2, 3, 3)), 7, 6, group=2, strides=[2, 1], pads=[0, 1, 2, 1])
    convolution(net, 3, rng.integers(-128, 128, (5, 3, 4)), 9, dilations=[2], pads=[3, 3])
    convolution(net, 2, rng.integers(-128, 128, (3, 2, 2, 3, 3)), 4, 5, 6, pads=[1] * 6)
    convolution(net, 1200, np.full((4, 600, 1, 1), 127), 2, 2, group=2)
    convolution(net, 1, np.full((2, 1, 30, 30), 127), 31, 31)


def computed_operands(net: Network) -> None:
    """Add a product whose split depends only on the dtypes."""
    net.add("MatMulInteger", net.given(largest(2, 3, 600)), net.given(largest(2, 600, 4)))


def transposed_operand(net: Network) -> None:
    net.add("Transpose", net.given(largest(2, 4, 100)), perm=[0, 2, 1])
    point = net.given(np.array(5, np.uint8))
    net.add("MatMulInteger", net.given(largest(2, 3, 100)), "0_Transpose_0", "", point)


def dense_layers(net: Network) -> None:
    """Add products whose splits depend on weights and zero points."""
    zero = net.given(np.array(3, np.uint8))
    for weight, dtype in ((127, "int8"), (9, "uint8"), (200, "uint8")):
        net.add("MatMulInteger", net.given(largest(3, 700)), net.weight(np.full((700, 5), weight), dtype), zero)


def scaled_convolution(net: Network) -> None:
    """Add a convolution whose scales must not be merged into integer weights."""
    x = net.given(net.rng.integers(0, 256, (1, 8, 9, 9)).astype(np.uint8))
    weight = net.weight(net.rng.integers(-128, 128, (16, 8, 3, 3)), "int8")
    zeros = net.weight(7, "uint8"), net.weight(0, "int8"), net.weight(3, "uint8")
    scales = net.weight(0.03), net.weight(0.0123), net.weight(0.7)
    net.add("QLinearConv", x, scales[0], zeros[0], weight, scales[1], zeros[1], scales[2], zeros[2])


@pytest.mark.examples(4)
@pytest.mark.parametrize(
    ("build", "operators"),
    [
        (split_channels(500), ["conv2d"]),
        (split_channels(600), ["conv2d"] * 2),
        (split_channels(1100), ["conv2d"] * 3),
        (convolutions_of_any_kind, ["conv2d"] * 3),
        (computed_operands, ["batch_matmul"] * 3),
        (transposed_operand, ["batch_matmul"]),
        (dense_layers, ["dense"] * 6),
        (scaled_convolution, ["conv2d"]),
    ],
)
def test_products_are_exact_and_split_only_if_necessary(
    tmp_path: Path, build: Callable[[Network], None], operators: list[str]
) -> None:
    net = Network(10)
    build(net)
    net.check(tmp_path, 0)
    found = workloads(net, tmp_path)
    assert [each.operator for each in found] == operators
    assert all(each.exact for each in found if not isinstance(each, BatchMatmul))
    assert all(each.transpose_right for each in found if build is transposed_operand)


def test_weights_of_both_signs_need_fewer_parts(tmp_path: Path) -> None:
    net = Network(10)
    signs = np.tile([1, -1], 500)[:, None, None]
    convolution(net, 1000, np.broadcast_to(127 * signs, (3, 1000, 1, 1)), 2, 3)
    assert len(workloads(net, tmp_path)) == 1


def test_exact_convolutions_do_not_use_winograd(tmp_path: Path) -> None:
    """Winograd transforms round."""
    from anole.space import ALGORITHM

    net = Network(10)
    convolution(net, 32, net.rng.integers(-9, 9, (32, 32, 3, 3)), 28, 28, pads=[1] * 4)
    (workload,) = workloads(net, tmp_path)
    assert ALGORITHM not in PLAIN.default_config(workload)


def dequantize(net: Network, name: str, scale: Any, zero: Any, **attributes: Any) -> str:
    net.add("DequantizeLinear", name, net.weight(scale), zero, **attributes)
    return f"{len(net.nodes) - 1}_DequantizeLinear_0"


def quantize(net: Network, name: str, scale: float, zero: int) -> str:
    net.add("QuantizeLinear", name, net.weight(scale), net.weight(zero, "uint8"))
    return f"{len(net.nodes) - 1}_QuantizeLinear_0"


def add_qdq_layers(net: Network) -> None:
    """Add layers as ONNX Runtime's quantizer writes them: a scale for each filter, int32 biases, zero padding."""
    rng = net.rng
    x = quantize(net, net.given(rng.standard_normal((1, 3, 8, 9)).astype(np.float32)), 0.02, 120)
    scales = rng.uniform(0.001, 0.01, 12).astype(np.float32)
    weight = net.weight(rng.integers(-127, 128, (12, 3, 3, 3)), "int8")
    zeros = net.weight(np.zeros(12), "int32"), net.weight(np.zeros(12), "int8")
    bias = dequantize(net, net.weight(rng.integers(-999, 999, 12), "int32"), scales * 0.02, zeros[0], axis=0)
    data = dequantize(net, x, 0.02, net.weight(120, "uint8"))
    kernel = dequantize(net, weight, scales, zeros[1], axis=0)
    net.add("Conv", data, kernel, bias, pads=[1] * 4, kernel_shape=[3, 3])
    net.add("Relu", f"{len(net.nodes) - 1}_Conv_0")
    y = quantize(net, f"{len(net.nodes) - 1}_Relu_0", 0.03, 0)
    net.add("Flatten", dequantize(net, y, 0.03, net.weight(0, "uint8")))
    flat = f"{len(net.nodes) - 1}_Flatten_0"
    dense = dequantize(net, net.weight(rng.integers(-127, 128, (7, 864)), "int8"), 0.004, net.weight(0, "int8"))
    net.add("Gemm", dequantize(net, quantize(net, flat, 0.03, 0), 0.03, net.weight(0, "uint8")), dense, transB=1)


def test_dequantized_operands_are_multiplied_as_integers(tmp_path: Path) -> None:
    net = Network(13)
    add_qdq_layers(net)
    net.check(tmp_path, 1e-5, only_last=True)
    found = workloads(net, tmp_path)
    assert [each.operator for each in found] == ["conv2d", "dense"]
    assert all(each.exact for each in found if not isinstance(each, BatchMatmul))


def test_max_pool_runs_on_quantized_values(tmp_path: Path) -> None:
    """Quantizing again with the same scale and zero point changes nothing."""
    net = Network(14)
    image = net.given(net.rng.standard_normal((1, 3, 8, 8)).astype(np.float32))
    data = dequantize(net, quantize(net, image, 0.02, 7), 0.02, zero7(net))
    net.add("MaxPool", data, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    pooled = quantize(net, f"{len(net.nodes) - 1}_MaxPool_0", 0.02, 7)
    net.add("DequantizeLinear", pooled, net.weight(0.02), zero7(net))
    net.check(tmp_path, 1e-6, only_last=True)


def test_requantization_with_another_scale_divides(tmp_path: Path) -> None:
    """Only the scales of a product are merged into one factor; here, its rounding would change ties."""
    net = Network(15)
    data = dequantize(net, quantize(net, net.given(np.linspace(-9, 9, 256, dtype=np.float32)), 0.07, 128), 0.07, "")
    again = quantize(net, data, 0.14, 64)
    net.add("Cast", again, to=1)
    net.check(tmp_path, 0, only_last=True)


def zero7(net: Network) -> str:
    return net.weight(7, "uint8")


def test_exact_ranges_for_any_weights() -> None:
    assert exact_ranges(258, None) == (slice(0, 258),)
    assert exact_ranges(259, None) == (slice(0, 258), slice(258, 259))


@pytest.mark.guard
@pytest.mark.parametrize("seed", range(5))
def test_quantization_is_bit_exact(tmp_path: Path, seed: int) -> None:
    """The data is divided by the scale, not multiplied by a rounded reciprocal, whose error may change the result."""
    net = Network(11)
    net.rng = np.random.default_rng(seed)
    for _ in range(8):
        net.add("DynamicQuantizeLinear", net.input(1, 3, 20, 10), outputs=3)
    scale = net.weight(net.rng.uniform(0.01, 0.03))
    net.add("QuantizeLinear", net.input(4, 500), scale, net.weight(100, "uint8"))
    net.check(tmp_path, 0)


def test_anchors_keep_the_names_of_their_operators(tmp_path: Path) -> None:
    net = Network(10)
    convolution(net, 4, net.rng.integers(-9, 9, (4, 4, 3, 3)), 5, 5)
    net.nodes[0] = helper.make_node("ConvInteger", net.nodes[0].input, net.nodes[0].output, name="named")
    onnx.save(net.model(), tmp_path / "net.onnx")
    layers = find_layers(load_model(ModelSpec("net", f"onnx:{tmp_path / 'net.onnx'}")))
    assert [layer.name for layer in layers] == ["named"]
