"""Outputs in double precision: of torch models, and of ONNX files with all kinds of single-precision tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from anole.config.entries import ModelSpec
from anole.errors import BuildError
from anole.evaluate.comparison import compare_outputs
from anole.evaluate.correctness.double_precision import compute_in_double

from ...extract.conftest import project as project
from ...extract.onnx.models import model_of, value

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL


def save(path: Path, nodes: list[onnx.NodeProto], shape: tuple[int, ...], opset: int = 12, **weights: object) -> str:
    """Write a model with one input ``x`` and one output ``y``, and return its source."""
    graph = helper.make_graph(nodes, "net", [value("x", shape)], [value("y")])
    onnx.save(model_of(graph, opset, ["com.microsoft"], **weights), path)
    return f"onnx:{path}"


def test_an_onnx_file_matches_torch_in_double_precision(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weight, half = rng.standard_normal((4, 3, 3, 3)).astype(np.float32), np.float16(0.1)
    norm = [rng.uniform(0.5, 2, 4).astype(np.float32) for _ in range(4)]
    body = helper.make_graph([helper.make_node("Mul", ["n", "third"], ["t"])], "b", [],
                             [helper.make_tensor_value_info("t", FLOAT, None)],
                             [numpy_helper.from_array(np.float32(1 / 3), "third")])  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], momentum=0.9, epsilon=1e-3),
        helper.make_node("If", ["yes"], ["i"], then_branch=body, else_branch=body),
        helper.make_node("Cast", ["h"], ["wide"], to=FLOAT),
        helper.make_node("Add", ["i", "wide"], ["y"]),
    ]
    names = dict(zip("sbmv", norm, strict=True))
    source = save(tmp_path / "net.onnx", nodes, (2, 3, 6, 6), w=weight, yes=np.array(True), h=half, **names)
    x = rng.standard_normal((2, 3, 6, 6)).astype(np.float32)
    ((found,),) = compute_in_double(ModelSpec("net", source, {}), [[x]])
    wide = [torch.from_numpy(each.astype(np.float64)) for each in (x, weight, *norm)]
    c = torch.nn.functional.conv2d(*wide[:2])
    n = torch.nn.functional.batch_norm(c, wide[4], wide[5], wide[2], wide[3], eps=float(np.float32(1e-3)))
    expected = n * float(np.float32(1 / 3)) + float(half)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("onesided", [0, 1])
def test_stft_of_signals_without_a_last_axis(tmp_path: Path, onesided: int) -> None:
    rng = np.random.default_rng(0)
    window = np.hanning(16).astype(np.float32)
    nodes = [helper.make_node("STFT", ["x", "step", "w"], ["y"], onesided=onesided)]
    source = save(tmp_path / "net.onnx", nodes, (2, 64), 17, step=np.int64(8), w=window)
    x = rng.standard_normal((2, 64)).astype(np.float32)
    ((found,),) = compute_in_double(ModelSpec("net", source, {}), [[x]])
    wide = torch.from_numpy(x.astype(np.float64))
    expected = torch.stft(wide, 16, 8, window=torch.from_numpy(window).double(), center=False,
                          onesided=bool(onesided), return_complex=True)  # fmt: skip
    np.testing.assert_allclose(found, torch.view_as_real(expected.transpose(1, 2)).numpy(), rtol=1e-12, atol=1e-12)


def test_values_with_tiny_variance_are_normalized(tmp_path: Path) -> None:
    nodes = [helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[1, 2])]
    source = save(tmp_path / "net.onnx", nodes, (2, 3, 4), 13)
    x = np.random.default_rng(0).normal(1000, 1e-3, (2, 3, 4)).astype(np.float32)
    ((found,),) = compute_in_double(ModelSpec("net", source, {}), [[x]])
    expected = torch.nn.functional.layer_norm(torch.from_numpy(x).double(), (3, 4), eps=0)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4)


def test_a_torch_model_is_computed_in_double_precision(project: Path) -> None:
    model = ModelSpec("net", "torch:tiny:residual", {"x": (1, 3, 16, 16)})
    x = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    exact = compute_in_double(model, [[x], [2 * x]])
    assert [[each.dtype for each in outputs] for outputs in exact] == [[np.dtype(np.float64)]] * 2
    single = [[each.astype(np.float32) for each in outputs] for outputs in exact]
    assert 0 < compare_outputs(single, exact).error < 1e-6


def test_an_unknown_operator_is_an_error(tmp_path: Path) -> None:
    node = helper.make_node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft")
    source = save(tmp_path / "net.onnx", [node], (2, 2), w=np.eye(2, dtype=np.float32))
    with pytest.raises(BuildError, match="model net cannot be computed in double precision: "):
        compute_in_double(ModelSpec("net", source, {}), [[np.zeros((2, 2), np.float32)]])
