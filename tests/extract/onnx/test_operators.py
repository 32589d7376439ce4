"""Converters of ONNX operators compared with ONNX Runtime; a network combines a family of operators, to save builds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from anole.errors import AnoleError
from kit.cases import run_model

from .models import model_of, reference, value


class Network:
    """A builder for networks of independent operators with random inputs."""

    def __init__(self, opset: int = 18, domains: Sequence[str] = ()) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.inputs: dict[str, NDArray[Any]] = {}
        self.weights: dict[str, NDArray[Any]] = {}
        self.opset, self.domains = opset, domains

    def input(self, *shape: int) -> str:
        """Add a random float32 input, and return its name."""
        return self.given(self.rng.standard_normal(shape).astype(np.float32))

    def given(self, values: NDArray[Any]) -> str:
        """Add an input with these values, and return its name."""
        self.inputs[f"x{len(self.inputs)}"] = values
        return f"x{len(self.inputs) - 1}"

    def weight(self, values: Any, dtype: str = "float32") -> str:
        """Add a constant, and return its name."""
        self.weights[f"w{len(self.weights)}"] = np.asarray(values, dtype)
        return f"w{len(self.weights) - 1}"

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> None:
        start = f"{len(self.nodes)}_{operator}"
        names = [f"{start}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, name=start, **attributes))

    def check(
        self,
        folder: Path,
        tolerance: float = 1e-4,
        only_last: bool = False,
        expected: Sequence[NDArray[Any]] | None = None,
    ) -> None:
        """Compare the outputs of all operators, or only of the last one, with ONNX Runtime or given results."""
        model = self.model()
        if only_last:
            del model.graph.output[:-1]
        names = [each.name for each in model.graph.output]
        expected = expected or reference(model, self.inputs)
        del model.graph.output[:]
        model.graph.output.extend(
            value(name, array.shape, array.dtype) for name, array in zip(names, expected, strict=True)
        )
        found = run_model(model, self.inputs, folder / "net.onnx")
        for name, mine, theirs in zip(names, found, expected, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape), name
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=name)

    def model(self) -> onnx.ModelProto:
        """Return a model with the outputs of all operators."""
        inputs = [value(name, array.shape, array.dtype) for name, array in self.inputs.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for node in self.nodes for name in node.output]
        graph = helper.make_graph(self.nodes, "net", inputs, outputs)
        model = model_of(graph, self.opset, self.domains, **self.weights)
        return onnx.shape_inference.infer_shapes(model)


FAMILIES: list[Any] = []
"""Functions that add a family of operators to a network, with the opset that they need."""


def family(opset: int = 18) -> Callable[[Callable[[Network], None]], Callable[[Network], None]]:
    def added(build: Callable[[Network], None]) -> Callable[[Network], None]:
        FAMILIES.append(pytest.param(build, opset, id=build.__name__))
        return build

    return added


@family()
def resize(net: Network) -> None:
    image = net.input(1, 2, 7, 6)
    for mode in ("nearest", "linear", "cubic"):
        for transform in ("half_pixel", "align_corners", "pytorch_half_pixel"):
            sizes = net.weight([1, 2, 10, 4], "int64")
            net.add("Resize", image, "", "", sizes, mode=mode, coordinate_transformation_mode=transform)
    scales = net.weight([1, 1, 1.7, 0.6])
    net.add("Resize", image, "", scales, mode="nearest")
    net.add("Resize", image, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric")
    net.add("Resize", image, "", scales, mode="linear", antialias=1)
    net.add("Resize", image, "", scales, mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
    net.add("Resize", image, "", "", net.weight([5, 9], "int64"), mode="linear", axes=[3, 2])
    net.add("Resize", net.input(2, 3, 5), "", net.weight([1, 1, 2]), mode="linear")


@family(12)
def resize_without_optional_inputs(net: Network) -> None:
    empty, sizes = net.weight([]), net.weight([1, 2, 7, 9], "int64")
    net.add("Resize", net.input(1, 2, 4, 5), empty, empty, sizes, mode="linear")
    net.add("Resize", net.input(1, 2, 4, 5), empty, net.weight([1, 1, 2, 2]), mode="nearest")


@family(13)
def norms_of_almost_equal_values(net: Network) -> None:
    nearly = 7 + net.rng.standard_normal((2, 6, 4)).astype(np.float32) / 10
    net.add("MeanVarianceNormalization", net.given(nearly), axes=[-1])
    net.add("MeanVarianceNormalization", net.input(2, 3, 4, 5))


@family()
def pooling(net: Network) -> None:
    image = net.input(1, 2, 9, 8)
    net.add("MaxPool", image, outputs=2, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1)
    net.add("MaxPool", image, outputs=2, kernel_shape=[2, 2], dilations=[2, 3], storage_order=1, pads=[1, 0, 1, 1])
    net.add("MaxPool", image, kernel_shape=[2, 2], strides=[2, 1], auto_pad="SAME_LOWER")
    net.add("LpPool", image, kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1, p=3)
    net.add("LpPool", image, kernel_shape=[2, 2], auto_pad="SAME_UPPER", p=1)


@family()
def transposed_convolutions(net: Network) -> None:
    values = net.rng.standard_normal((4, 3, 3, 2)).astype(np.float32)
    for weight in (net.weight(values), net.given(values)):
        convolve_transposed(net, weight)


def convolve_transposed(net: Network, weight: str) -> None:
    image = net.input(1, 4, 5, 6)
    net.add("ConvTranspose", image, weight, net.weight([1, 2, 3]), strides=[2, 3], output_shape=[10, 18])
    net.add("ConvTranspose", image, weight, strides=[2, 2], auto_pad="SAME_LOWER")
    net.add("ConvTranspose", image, weight, group=2, pads=[1, 0, 0, 1], output_padding=[0, 1], strides=[1, 2])


@family(19)
def blocks_and_deformations(net: Network) -> None:
    net.add(
        "Col2Im", net.input(1, 12, 6), net.weight([4, 4], "int64"), net.weight([3, 2], "int64"), strides=[1, 2],
        pads=[1, 0, 0, 1],
    )  # fmt: skip
    net.add(
        "DeformConv", net.input(1, 4, 5, 6), net.input(6, 2, 3, 3), net.input(1, 36, 3, 4), net.input(6),
        net.input(1, 18, 3, 4), group=2, offset_group=2,
    )  # fmt: skip


@family(21)
def quantized_operators(net: Network) -> None:
    rng = net.rng
    image, weight = rng.integers(0, 256, (1, 4, 6, 5)).astype(np.uint8), rng.integers(-128, 128, (6, 4, 3, 3))
    x, w = net.given(image), net.weight(weight, "int8")
    zero, center = net.weight(7, "uint8"), net.weight(0, "int8")
    scales = net.weight(rng.uniform(0.01, 0.02, 6))
    net.add("ConvInteger", x, w, zero, pads=[1, 1, 1, 1], strides=[2, 1])
    bias, zeros = net.weight(rng.integers(-999, 999, 6), "int32"), net.weight([0] * 6, "int8")
    net.add("QLinearConv", x, net.weight(0.03), zero, w, scales, zeros, net.weight(0.2), zero, bias, pads=[1] * 4)
    a, b = net.given(rng.integers(0, 256, (3, 8)).astype(np.uint8)), net.weight(rng.integers(-128, 128, (8, 6)), "int8")
    net.add("MatMulInteger", a, b, zero, center)
    net.add("QLinearMatMul", a, net.weight(0.03), zero, b, net.weight(0.01), center, net.weight(0.1), zero)
    data = net.input(3, 6)
    net.add("DynamicQuantizeLinear", data, outputs=3)
    net.add("QuantizeLinear", data, scales, zeros, axis=1)
    net.add("DequantizeLinear", a, net.weight([0.5, 0.25, 2]), net.weight([1, 2, 3], "uint8"), axis=0)
    blocks = net.weight(rng.uniform(0.5, 2, (3, 2)))
    net.add("QuantizeLinear", data, blocks, net.weight([[0, 1]] * 3, "int8"), axis=1, block_size=3)


@family(20)
def indexing(net: Network) -> None:
    data, indices = (
        net.input(4, 3, 5),
        net.given(net.rng.permutation(4)[:2][:, None, None] + np.zeros((2, 3, 2), int) - 4),
    )
    updates = net.input(2, 3, 2)
    for reduction in ("none", "add", "mul", "min", "max"):
        net.add("ScatterElements", data, indices, updates, axis=0, reduction=reduction)
    values = net.given(np.array([2, 5], np.float32))
    net.add("OneHot", net.given(np.array([[1, -1], [0, 9]])), net.weight(4, "int64"), values, axis=1)
    net.add("ReverseSequence", data, net.given(np.array([1, 4, 2])), batch_axis=1, time_axis=0)
    pads = net.weight([-1, 0, 2, 1, -1, 0], "int64")
    net.add("Pad", data, pads, net.given(np.array(3, np.float32)))
    for mode in ("edge", "reflect", "wrap"):
        net.add("Pad", data, net.weight([-1, 0, 2, 1, -1, -1], "int64"), mode=mode)
    net.add("Pad", data, net.weight([-2, 3], "int64"), "", net.weight([-1], "int64"), mode="edge")
    net.add("Compress", data, net.weight([1, 0, 1, 1], "bool"), axis=0)
    image = net.input(1, 1, 2, 2)
    net.add("MaxUnpool", image, net.given(np.array([[[[5, 7], [13, 15]]]])), kernel_shape=[2, 2], strides=[2, 2])


@family()
def elementwise(net: Network) -> None:
    a, b = net.input(3, 4), net.input(4)
    for operator in ("Max", "Min", "Mean", "Sum"):
        net.add(operator, a, b, net.weight(0.1))
    for operator in ("Cosh", "Sinh"):
        net.add(operator, a)
        net.add(operator, net.given(np.array([89, -89, np.inf, -np.inf, np.nan], np.float32)))
    net.add("Mod", a, b, fmod=1)
    infinite = net.given(np.array([np.inf, -np.inf, 0, np.nan], np.float32))
    net.add("IsInf", infinite, detect_negative=0)
    net.add("IsInf", infinite, detect_positive=0)
    integers = net.given(np.array([-3, 2, 7, 5]))
    net.add("Pow", integers, net.weight([3, 30, 11, 0], "int64"))
    net.add("Pow", a, net.weight([2, 3, 0, 1], "int32"))
    net.add("Pow", integers, net.weight([2, 0.5, 2, 1]))
    net.add("EyeLike", a, k=1, dtype=onnx.TensorProto.INT32)
    net.add("Dropout", a, outputs=2)


def test_shifts_by_all_bits_or_more_keep_only_the_sign(tmp_path: Path) -> None:
    """ONNX specifies this; processors differ, and ONNX Runtime does not shift signed integers."""
    net, expected = Network(28), list[NDArray[Any]]()
    for dtype in ("int8", "uint8", "int64"):
        kind, bits = np.iinfo(dtype), 8 * np.dtype(dtype).itemsize
        numbers, shifts = [kind.min // 2, 5, kind.max], [-1] * (kind.min < 0) + [0, 2, bits - 1, bits, 100]
        given = np.array(numbers, dtype)[:, None] + np.zeros(len(shifts), dtype), np.array(shifts, dtype)
        within = [0 <= shift < bits for shift in shifts]
        for direction, shift in (("RIGHT", np.right_shift), ("LEFT", np.left_shift)):
            net.add("BitShift", *map(net.given, given), direction=direction)
            rest = np.where(given[0] < 0, -1, 0).astype(dtype) if direction == "RIGHT" else np.zeros((), dtype)
            expected.append(np.where(within, shift(given[0], np.where(within, given[1], 0).astype(dtype)), rest))
    net.check(tmp_path, expected=expected)


@family()
def axes(net: Network) -> None:
    data = net.input(2, 3, 4)
    net.add("LpNormalization", data, axis=1, p=1)
    net.add("LpNormalization", data, axis=-1)
    net.add("LayerNormalization", data, net.input(3, 4), net.input(3, 4), axis=1, outputs=3)
    masked = net.given(np.array([[-np.inf, -np.inf], [1, 2]], np.float32))
    net.add("ReduceMax", masked, net.weight([1], "int64"), keepdims=0)
    net.add("Det", net.input(2, 3, 3))
    net.add("CumSum", data, net.weight(1, "int64"), exclusive=1, reverse=1)


@family()
def counts_of_ngrams(net: Network) -> None:
    net.add(
        "TfIdfVectorizer",
        net.given(np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]])), min_gram_length=1, mode="TFIDF",
        max_gram_length=2, max_skip_count=2, ngram_counts=[0, 4], ngram_indexes=[0, 1, 2, 3, 4, 5, 6],
        pool_int64s=[2, 3, 5, 4, 5, 6, 7, 8, 6, 7], weights=[2.0, 1, 1, 1, 3, 1, 1],
    )  # fmt: skip


@family(20)
def spectra(net: Network) -> None:
    net.add("DFT", net.input(2, 10, 3, 1), net.weight(12, "int64"), net.weight(1, "int64"), onesided=1)
    net.add("DFT", net.input(2, 6, 2), net.weight(6, "int64"), net.weight(1, "int64"), inverse=1)
    window = net.weight(np.hanning(16))
    net.add("STFT", net.input(1, 64, 1), net.weight(8, "int64"), window, net.weight(16, "int64"), onesided=1)


@pytest.mark.examples(5)
@pytest.mark.parametrize(("build", "opset"), FAMILIES)
def test_operators_match_onnx_runtime(tmp_path: Path, build: Callable[[Network], None], opset: int) -> None:
    net = Network(opset)
    build(net)
    net.check(tmp_path)


def lstm(dtype: str = "float32", **attributes: Any) -> tuple[str, list[Any], dict[str, Any]]:
    """Return the operator, operands and attributes of an LSTM with two hidden units."""
    weights = [(np.zeros((1, 8, inputs)), "float32") for inputs in (3, 2)]
    return "LSTM", [("x", dtype, (2, 1, 3)), *weights], {"hidden_size": 2, **attributes}


INVALID_OPERATORS = {
    "mode linear of uint8": (
        "Resize",
        [("x", "uint8", (1, 1, 4, 4)), ("", None, None), ([1, 1, 2, 2], "float32")],
        {"mode": "linear"},
    ),
    "output_shape: only [1, 1, 4, 4]": (
        "MaxUnpool",
        [("x", "float32", (1, 1, 2, 2)), ("i", "int64", (1, 1, 2, 2)), ([1, 1, 5, 5], "int64")],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "found 5 x 5": ("Det", [("x", "float32", (5, 5))], {}),
    "found data of type float64": lstm("float64"),
    "activations: found cube": lstm(activations=["Sigmoid", "Cube", "Tanh"]),
    "activation_beta: missing for scaledtanh": lstm(
        activations=["Sigmoid", "ScaledTanh", "Tanh"], activation_alpha=[0.5]
    ),
    "expected [2, 8, 2]": lstm(direction="bidirectional"),
    "found pads [-4, 2] for shape [4]": ("Pad", [("x", "float32", (4,)), ([-4, 2], "int64")], {"mode": "edge"}),
}


@pytest.mark.parametrize("message", INVALID_OPERATORS)
def test_errors_name_the_operator_and_the_problem(tmp_path: Path, message: str) -> None:
    operator, operands, attributes = INVALID_OPERATORS[message]
    net, names = Network(), []
    for given, *kind in operands:
        if isinstance(given, str):
            names.append(net.given(np.zeros(kind[1], kind[0])) if given else "")
        else:
            names.append(net.weight(given, kind[0]))
    net.add(operator, *names, **attributes)
    model = net.model()
    del model.graph.output[:]
    model.graph.output.append(value(net.nodes[0].output[0]))
    with pytest.raises(AnoleError) as caught:
        run_model(model, net.inputs, tmp_path / "net.onnx")
    assert message in str(caught.value) and operator in str(caught.value)


def test_nan_and_scalars_match_onnx_runtime(tmp_path: Path) -> None:
    network = Network()
    x, nan = network.input(2, 5), network.weight(np.nan)
    network.weight([np.nan])
    network.add("Clip", x, nan, network.weight(0.5))
    network.add("Clip", x, network.weight(-0.5), nan)
    network.add("Where", network.weight([True, False, True, False, False], "bool"), x, nan)
    network.add("PRelu", network.given(np.array(-2.0, np.float32)), network.weight(0.1))
    network.add("PRelu", x, network.weight(0.1))
    network.check(tmp_path)


def test_empty_tensors_are_dropped(tmp_path: Path) -> None:
    network = Network()
    x, axis = network.input(1, 3, 4), network.weight([1], "int64")
    zero, three = network.weight([0], "int64"), network.weight([3], "int64")
    network.add("Slice", x, zero, zero, axis)
    empty = "0_Slice_0"
    network.add("Concat", empty, x, axis=1)
    network.add("Split", x, network.weight([0, 3], "int64"), axis=1, outputs=2)
    network.add("ReduceMax", empty, axis)
    network.add("ReduceSum", empty, axis, keepdims=0)
    network.add("Slice", x, three, three, network.weight([2], "int64"))
    network.add("MatMul", "5_Slice_0", network.weight(np.zeros((0, 4))))
    network.check(tmp_path)
