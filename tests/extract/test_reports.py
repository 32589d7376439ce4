"""Public reports of wrong results in other compilers, as small networks against torch or ONNX Runtime.

docs/results/data/reports.csv lists them with their outcomes here.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from anole.config.entries import ModelSpec
from anole.errors import AnoleError, ExtractError
from anole.extract.load import load_model
from anole.extract.torch import make_network
from kit.cases import compute, run_model

from .onnx.models import model_of, reference

pytestmark = pytest.mark.guard

TORCH: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "pytorch 198057": (
        "torch.remainder(x * 1e20, torch.tensor([3, 0.7, -3, torch.inf, -torch.inf, 0.1, 1, 7]))",
        {"x": [2, 8]},
    ),
    "pytorch 97333": ("torch.fmod(x * 10, 2.3)", {"x": [4, 40]}),
    "pytorch 174172": ("torch.copysign(x, -0.0), torch.copysign(x, torch.tensor(-2.0))", {"x": [6]}),
    "pytorch 143566": (
        "torch.bitwise_left_shift(x, 33), torch.bitwise_right_shift(x, 1)",
        {"x": {"shape": [40], "dtype": "int64"}},
    ),
    "pytorch 113014": ("GreaterWithItsOperand", {"x": [4, 20]}),
    "pytorch 114229": ("ArgmaxWithItsOperand", {"x": [3, 20]}),
    "pytorch 151525": ("ConvTransposeLinearArgmax", {"x": [1, 3, 8, 8]}),
    "pytorch 154703": ("torch.sigmoid(x).mean()", {"x": [3000, 3000]}),
    "pytorch 112429": ("ViewMutation", {"x": [12]}),
    "pytorch 131679": ("CopyMutation", {"x": [4]}),
    "pytorch 195422": ("DropoutAliasMutation", {"x": [2, 2]}),
    "pytorch 191499": ("x.amin(1), x.amax(0)", {"x": {"shape": [5, 37], "dtype": "uint8"}}),
    "pytorch 195851": ("x.cumsum(-1), x.cumprod(0)", {"x": [3, 7]}),
    # A sign of values near 0, after an activation that is exact at 0.
    "pytorch 189804": ("torch.sign(F.gelu(torch.clamp(x, min=0)))", {"x": [3, 40]}),
    "tvm 18407": ("MaskedAttention", {"x": [2, 6, 8], "tokens": {"shape": [2, 6], "dtype": "int64"}}),
    "tvm 18362": ("IndexedWrite", {"x": [3, 5]}),
    "tvm 18357": ("BufferOutsideTheState", {"x": [1, 6, 4]}),
    "tvm 17989": ("torch.unbind(x, dim=0)", {"x": [2, 3, 4]}),
    "tvm 18339": ("torch.mm(x, x.t())", {"x": [3, 5]}),
    "onnxruntime 20357": ("ProjectedMean", {"x": [2, 3, 9, 9]}),
}
"""The network of a report, as an expression of x or the name of a class, and its inputs."""

EXPRESSION = """

class Expression(nn.Module):
    def forward(self, x):
        return {}
"""


@pytest.mark.parametrize("report", TORCH)
def test_a_reported_network_is_correct(report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, inputs = TORCH[report]
    name = network if network.isidentifier() else "Expression"
    text = (Path(__file__).parent / "reported_networks.py").read_text() + EXPRESSION.format(network)
    (tmp_path / "reported.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    spec = ModelSpec.from_json("net", {"source": f"torch:reported:{name}", "inputs": inputs})
    imported = load_model(spec)
    arrays = {info.name: _random(info.shape, info.dtype) for info in imported.inputs}
    with torch.no_grad():
        theirs = make_network(spec)(*(torch.from_numpy(each.copy()) for each in arrays.values()))
    expected = [each.numpy() for each in (theirs if isinstance(theirs, tuple) else (theirs,))]
    _assert_close(compute(imported, arrays), expected)


_X = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)


@dataclass(frozen=True)
class Graph:
    """A small ONNX graph as text, with its opset, inputs and weights."""

    text: str
    opset: int
    inputs: Mapping[str, Any] = field(default_factory=lambda: {"x": _X})
    weights: Mapping[str, Any] = field(default_factory=dict)


_ONNX: Mapping[str, Graph] = {
    "onnxruntime 22177": Graph(
        "(float[2,3,4,5] x) => (float[2,3,3,4] y) { p = Pad (x, pads) y = AveragePool"
        " <kernel_shape = [3, 3], count_include_pad = 0, strides = [2, 2], pads = [1, 1, 0, 0]> (p) }",
        18,
        weights={"pads": np.array([0, 0, 1, 1, 0, 0, 2, 3])},
    ),
    "onnxruntime 27375": Graph(
        "(float[2,3,4,5] x) => (float[2,3,3,4] y) { y = AveragePool <kernel_shape = [2, 2], dilations = [2, 2],"
        " count_include_pad = 1, pads = [1, 1, 0, 0]> (x) }",
        19,
    ),
    "onnxruntime 9411": Graph(
        "(float[3] x) => (float[3] y) { y = ScatterND (x, at, updates) }",
        16,
        {"x": _X[0, 0, 0, :3]},
        {"at": np.array([[1]]), "updates": np.array([5.0], np.float32)},
    ),
    "onnxruntime 13165": Graph(
        "(float[1,2] x) => (float[1,2] y, float[1,2] z) { y = CumSum <exclusive = 1> (x, axis)"
        " z = CumSum <exclusive = 1, reverse = 1> (x, axis) }",
        14,
        {"x": _X[0, 0, :1, :2]},
        {"axis": np.array(-2)},
    ),
    "onnxruntime 4110": Graph(
        "(float[2,3,4,5] x) => (float[2,3,4,5] y, float[2,3,4,5] s, float[2,3,4,5] n) {"
        " m = ReduceMean <axes = [-1]> (x) s = Sub (x, m) q = Mul (s, s)"
        " v = ReduceMean <axes = [-1]> (q) e = Add (v, eps) r = Sqrt (e)"
        " n = Div (s, r) t = Mul (n, scale) y = Add (t, bias) }",
        17,
        weights={"eps": np.float32(1e-5), "scale": _X[0, 0, 0], "bias": _X[0, 0, 1]},
    ),
    "onnxruntime 29788": Graph(
        "(float[4,6] x) => (float[4,5] y) { w = Reshape (flat, shape) v = Squeeze (w, axis) u = Flatten (v)"
        " y = MatMul (x, u) }",
        17,
        {"x": _X.ravel()[:24].reshape(4, 6)},
        {"flat": _X.ravel()[:30], "shape": np.array([1, 6, 5]), "axis": np.array([0])},
    ),
    "onnxruntime 31163": Graph(
        "(float[3,4] x) => (float[3,4] y) { s = Sqrt (zeros) r = Reciprocal (s) m = ReduceMin <axes = [-1],"
        " keepdims = 1> (r) k = Mul (m, half) c = Less (x, k) y = Where (c, x, half) }",
        13,
        {"x": _X[0, 0, :3, :4]},
        {"zeros": np.zeros((3, 4), np.float32), "half": np.float32(0.5)},
    ),
    "tvm 7270": Graph(
        "(float[2,3,4,5] x) => (float[1,120] y) { f = Flatten <axis = 0> (x)"
        " y = ReduceL1 <axes = [0], keepdims = 1> (f) }",
        13,
    ),
    "tvm 18598": Graph(
        "(float[1,3,4,5] x) => (float[1,3,4,5] y, float[1,3,4,5] z) { y = PRelu (x, rows) z = PRelu (x, one) }",
        16,
        {"x": _X[:1]},
        {"rows": _X[1, :1, :1, :], "one": np.float32([0.25])},
    ),
    "tvm 15651": Graph(
        "(float[2,3,4,5] x) => (float[2,3,2,3,5] y) { y = Gather <axis = 2> (x, at) }",
        13,
        weights={"at": np.array([[0, -1, 2], [-4, 3, 1]])},
    ),
    "tvm 18897": Graph(
        "(float[2,1,5] x, float[2,3,5] a) => (float[2,4,5] y, float[2,1,5] z) { z = Clip (x, low, high)"
        " c = Concat <axis = 1> (x, a) t = Tan (c) g = Gelu (t) y = LeakyRelu <alpha = 0.1> (g) }",
        20,
        {"x": _X[:, 0, :1], "a": _X[:, 0, 1:4]},
        {"low": np.float32(-0.5), "high": np.float32(0.5)},
    ),
    "tvm 18133": Graph(
        '(float[1,3,4,5] x) => (float[1,3,8,10] y, float[1,3,6,5] z) { y = Resize <mode = "cubic",'
        ' coordinate_transformation_mode = "align_corners", cubic_coeff_a = -0.5> (x, , scales)'
        ' z = Resize <mode = "cubic", exclude_outside = 1> (x, , , sizes) }',
        18,
        {"x": _X[:1]},
        {"scales": np.float32([1, 1, 2, 2]), "sizes": np.array([1, 3, 6, 5])},
    ),
    "tvm 17770": Graph(
        "(float[2,3,4,5] x) => (float[6,20] y) { s = Shape (x) a = Slice (s, zero, two, zero) p = ReduceProd"
        " <keepdims = 1> (a) r = Concat <axis = 0> (p, rest) y = Reshape (x, r) }",
        17,
        weights={"zero": np.array([0]), "two": np.array([2]), "rest": np.array([-1])},
    ),
    "tvm 19965": Graph(
        "(float[2,3,1,5] x) => (float[2,5,3] y) { s = Squeeze <axes = [2]> (x) y = Transpose <perm = [0, 2, 1]> (s) }",
        11,
        {"x": _X[:, :, :1]},
    ),
    "tvm 20406": Graph(
        '(float[1,3,4,5] x) => (float[1,3,7,9] y) { y = Resize <mode = "linear",'
        ' coordinate_transformation_mode = "pytorch_half_pixel"> (x, empty, empty, sizes) }',
        12,
        {"x": _X[:1]},
        {"empty": np.zeros(0, np.float32), "sizes": np.array([1, 3, 7, 9])},
    ),
    "tvm 18703": Graph(
        "(float[2,3,4,5] x) => (float[2,3,4,5] y) { y = BatchNormalization <training_mode = 0, epsilon = 0.01>"
        " (x, scale, bias, mean, var) }",
        15,
        weights={name: np.float32([1.5, 0.5, 2]) + k for k, name in enumerate(["scale", "bias", "mean", "var"])},
    ),
    "tvm 18698": Graph(
        "(float[2,3,4,5] x) => (float[2,3,5] y, float z) { y = ReduceMean <axes = [2], keepdims = 0> (x)"
        " z = ReduceMax <keepdims = 0> (x) }",
        11,
    ),
    "tvm 17991": Graph(
        "(int32[2,5] x) => (int32[2,5] y, int32[2,5] z) { y = BitwiseNot (x) z = BitwiseAnd (y, mask) }",
        18,
        {"x": np.arange(-5, 5, dtype=np.int32).reshape(2, 5)},
        {"mask": np.array([6], np.int32)},
    ),
    "tvm 18750": Graph(
        "(float[2,3,4,5] x) => (float[2,3,4,5] y, float[2,3,4,5] z) {"
        ' y = Gelu <approximate = "tanh"> (x) z = Gelu (x) }',
        20,
    ),
    "tvm 19501": Graph(
        "(float[1,3,4,5] x) => (float[2,3,2,2] y, float[2,3,2,2] z) { y = RoiAlign <coordinate_transformation_mode ="
        ' "half_pixel", output_height = 2, output_width = 2, sampling_ratio = 2> (x, rois, batch) z = RoiAlign'
        ' <coordinate_transformation_mode = "output_half_pixel", mode = "max", output_height = 2,'
        " output_width = 2, sampling_ratio = 2> (x, rois, batch) }",
        16,
        {"x": _X[:1]},
        {"rois": np.float32([[0, 0, 3, 3], [1, 0.5, 4, 3]]), "batch": np.array([0, 0])},
    ),
    "openvino 31007": Graph(
        '(float[1,3,4,5] x) => (float[1,2,8,10] y) { y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [2, 2]>'
        " (x, w) }",
        11,
        {"x": _X[:1]},
        {"w": _X[:1, :1, :3, :3].repeat(3, 0).repeat(2, 1)},
    ),
    "openvino 30798": Graph(
        "(float[1,3,5] x) => (float[1,2,12] y) { y = ConvTranspose <output_shape = [12], strides = [2]> (x, w) }",
        11,
        {"x": _X[0, :, :1].transpose(1, 0, 2)},
        {"w": _X[:1, 0, :2, :3].repeat(3, 0)},
    ),
    "openvino 33397": Graph(
        "(float[1,4,4,5] x) => (float[1,6,8,11] y) { y = ConvTranspose <group = 2, strides = [2, 2],"
        " dilations = [1, 2], pads = [1, 1, 0, 1], output_padding = [0, 1]> (x, w) }",
        11,
        {"x": _X[:, :2].reshape(1, 4, 4, 5)},
        {"w": _X.ravel()[:108].reshape(4, 3, 3, 3)},
    ),
    "openvino 30666": Graph(
        "(float[3,4] x) => (int64[3,1] y, int64[3,1] z) { r = Round (x) y = ArgMax <axis = 1> (r)"
        " z = ArgMax <axis = 1, select_last_index = 1> (r) }",
        13,
        {"x": _X[0, 0, :3, :4]},
    ),
}

_RANDOM: Mapping[str, Graph] = {
    "a kernel shorter than its stride": Graph(
        '(float[1,3,4,5] x) => (float[1,2,7,10] y) { y = ConvTranspose <auto_pad = "SAME_LOWER", strides = [2, 2]>'
        " (x, w) }",
        11,
        {"x": _X[:1]},
        {"w": _X[:1, :1, :1, :3].repeat(3, 0).repeat(2, 1)},
    ),
    "the shape of a value that the onnx package does not infer": Graph(
        "(float[2,3,4,5] x) => (int64 y) { m = MeanVarianceNormalization (x) p = MatMul (m, w) s = Shape (p)"
        " y = ReduceMax <keepdims = 0> (s) }",
        13,
        weights={"w": _X[0, 0, :, :2].T.repeat(3, 1)[:, :5].T.copy()},
    ),
    "conditions cast to numbers in variables": Graph(
        "(float[2,3,4,5] x) => (float[2,3,4,5] y, float[2,3,4,5] z) { t = ThresholdedRelu <alpha = 0.3> (x) y = Erf (t)"
        " c = Less (x, t) f = Cast <to = 1> (c) g = Mul (f, x) z = Exp (g) }",
        13,
        {"x": np.where(_X > 1.5, -np.inf, _X).astype(np.float32)},
    ),
    "floats as integers": Graph(
        "(float[2,3,4,5] x) => (int32[2,3,4,5] y, int64[2,3,4,5] z) { i = Cast <to = 6> (x) s = Sign (i)"
        " c = Clip (s, low, high) a = Abs (c) y = Neg (a) z = Cast <to = 7> (x) }",
        13,
        {"x": np.where(_X > 1.5, np.inf, np.where(_X > 1, 3e9, 10 * _X)).astype(np.float32)},
        {"low": np.int32(-1), "high": np.int32(3)},
    ),
    "a scalar": Graph("(float x) => (float y) { y = Celu <alpha = 0.3> (x) }", 13, {"x": np.array(-0.7, np.float32)}),
    "a resized axis of one element": Graph(
        '(float[2,3,4,5] x) => (float[2,3,1,3] y) { y = Resize <mode = "cubic",'
        ' coordinate_transformation_mode = "pytorch_half_pixel"> (x, , scales) }',
        13,
        weights={"scales": np.float32([1, 1, 0.4, 0.6])},
    ),
}
"""Failures found by random graphs."""


@pytest.mark.parametrize("report", [*_ONNX, *_RANDOM])
def test_a_reported_graph_is_correct(report: str, tmp_path: Path) -> None:
    graph = {**_ONNX, **_RANDOM}[report]
    model = model_of(graph.text, graph.opset, **graph.weights)
    _assert_close(run_model(model, graph.inputs, tmp_path / "net.onnx"), reference(model, graph.inputs))


def test_a_constant_within_a_function_is_folded(tmp_path: Path) -> None:
    """ONNX Script 2673: folding removes a constant that a function of the model needs."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["own": 1, "": 19]> net (float[3] x) => (float[3] y) { y = own.less (x) }
        <domain: "own", opset_import: ["": 19]> less (x) => (y) {
            one = Constant <value_int: int = 1> () number = Cast <to: int = 1> (one) y = Sub (number, x) }
    """)
    (found,) = run_model(model, {"x": _X[0, 0, 0, :3]}, tmp_path / "net.onnx")
    np.testing.assert_allclose(found, 1 - _X[0, 0, 0, :3])


def test_a_squeeze_of_an_axis_that_is_not_1_is_rejected(tmp_path: Path) -> None:
    """TVM 20185; the specification of ONNX calls it an error."""
    model = model_of("(float[2,3] x) => (float[3] y) { y = Squeeze (x, axis) }", 13, axis=np.array([0]))
    with pytest.raises(ExtractError):
        run_model(model, {"x": np.zeros((2, 3), np.float32)}, tmp_path / "net.onnx")


def test_an_empty_slice_is_correct_or_rejected(tmp_path: Path) -> None:
    """TVM 19532; it must not crash."""
    model = model_of("(float[10] x) => (float[0] y, float[10] z) { y = Slice (x, a, b, a, c) z = Add (x, x) }", 13,
                     a=np.array([0]), b=np.array([5]), c=np.array([-1]))  # fmt: skip
    with suppress(AnoleError):
        assert run_model(model, {"x": _X[0, 0, :2].ravel()}, tmp_path / "net.onnx")[0].shape == (0,)


def test_the_list_has_every_report() -> None:
    path = Path(__file__).parents[2] / "docs/results/data/reports.csv"
    with path.open(newline="", encoding="utf-8") as file:
        listed = {row["report"] for row in csv.DictReader(file)}
    others = {"onnxscript 2673", "tvm 20185", "tvm 19532", "snakemake 3235"}
    assert listed == {*TORCH, *_ONNX, *others}


def _random(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    if dtype == "float32":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0 if dtype == "uint8" else -9, 10, shape).astype(dtype)


def _assert_close(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
