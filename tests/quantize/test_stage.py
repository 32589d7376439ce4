"""Models are quantized to 8 bits; the loss is measured, and layers with the largest loss may stay in float32."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from anole.config.entries import ModelSpec
from anole.errors import AnoleError
from anole.evaluate.engines import precision_of
from anole.extract.stage import extract_tasks
from anole.quantize.stage import quantize_model
from anole.report.tables import render_quantized
from anole.targets import get_target

from ..extract.onnx.models import model_of
from ..terminal import rendered

PLAIN = get_target({"kind": "cpu", "mcpu": "x86-64-v4", "model": "", "features": ["avx2", "avx512bw"], "threads": 1})
SHAPE = (1, 8, 12, 12)


@pytest.fixture
def model(tmp_path: Path) -> ModelSpec:
    """Two convolutions, the first with one filter far larger than the others, and a dense layer."""
    rng = np.random.default_rng(3)
    first = rng.standard_normal((16, 8, 3, 3)).astype(np.float32)
    first[0] *= 50
    weights: dict[str, Any] = {
        "first": first,
        "second": rng.standard_normal((8, 16, 1, 1)).astype(np.float32),
        "matrix": rng.standard_normal((8, 4)).astype(np.float32),
    }
    graph = """(float[batch,8,12,12] x) => (float[batch,4] y) {
        [one] a = Conv <pads = [1, 1, 1, 1]> (x, first)
        b = Relu (a)
        [two] c = Conv (b, second)
        d = GlobalAveragePool (c)
        e = Flatten (d)
        [three] y = MatMul (e, matrix)
    }"""
    path = tmp_path / "net.onnx"
    onnx.save(model_of(graph, **weights), path)
    return ModelSpec("net", f"onnx:{path}", {"x": SHAPE})


def types_of(model: ModelSpec, file: Path) -> list[str]:
    _, tasks = extract_tasks(replace(model, source=f"onnx:{file}", samples=None), "cpu", PLAIN)
    return [task.workload.dtype for task in tasks]


def test_all_layers_are_quantized(model: ModelSpec, tmp_path: Path) -> None:
    output = tmp_path / "work" / "net.onnx"
    found = quantize_model(model, output)
    assert found is not None and not found.floats
    assert [layer.name for layer in found.loss.layers] == ["one", "two", "three"]
    assert 30 < found.loss.sqnr_db < 60 and all(20 < layer.sqnr_db < 60 for layer in found.loss.layers)
    assert types_of(model, output) == ["uint8"] * 3


def test_a_file_with_an_old_opset_gets_scales_for_each_filter(model: ModelSpec, tmp_path: Path) -> None:
    old = onnx.load(model.location)
    old.opset_import[0].version = 12
    onnx.save(old, model.location)
    found = quantize_model(model, tmp_path / "q.onnx", "min-max")
    assert found is not None and found.loss.sqnr_db > 30
    assert types_of(model, tmp_path / "q.onnx") == ["uint8"] * 3


def test_a_bias_may_be_a_row(model: ModelSpec, tmp_path: Path) -> None:
    file = onnx.load(model.location)
    file.graph.node[-1].output[0] = "products"
    file.graph.node.append(helper.make_node("Add", ["products", "row"], ["y"]))
    file.graph.initializer.append(numpy_helper.from_array(np.ones((1, 4), np.float32), "row"))
    onnx.save(file, model.location)
    found = quantize_model(model, tmp_path / "q.onnx", "min-max")
    assert found is not None and found.loss.sqnr_db > 30 and len(found.loss.layers) == 3


def test_copies_of_a_shared_bias_get_unused_names(model: ModelSpec, tmp_path: Path) -> None:
    file = onnx.load(model.location)
    for node in file.graph.node[:3:2]:
        node.input.append("shared")
    # The second convolution has as many filters as the first one, and its result the name of ONNX Runtime's copy.
    del file.graph.initializer[1]
    weight = np.random.default_rng(4).standard_normal((16, 16, 1, 1)).astype(np.float32)
    values = {"second": weight, "shared": np.arange(16, dtype=np.float32)}
    file.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    file.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones((16, 4), np.float32), "matrix"))
    file.graph.node[2].output[0] = file.graph.node[3].input[0] = "shared0"
    onnx.save(file, model.location)
    found = quantize_model(model, tmp_path / "q.onnx", "min-max")
    assert found is not None and found.loss.sqnr_db > 10 and len(found.loss.layers) == 3


def test_a_mask_with_huge_values_is_supported(model: ModelSpec, tmp_path: Path) -> None:
    file = onnx.load(model.location)
    file.graph.node[-1].output[0] = "scores"
    file.graph.node.append(helper.make_node("Tanh", ["scores"], ["bounded"]))
    file.graph.node.append(helper.make_node("Add", ["bounded", "mask"], ["masked"]))
    file.graph.node.append(helper.make_node("Softmax", ["masked"], ["y"]))
    mask = np.array([[0, 0, np.finfo(np.float32).min, 0]], np.float32)
    file.graph.initializer.append(numpy_helper.from_array(mask, "mask"))
    onnx.save(file, model.location)
    found = quantize_model(model, tmp_path / "q.onnx")
    assert found is not None and found.loss.sqnr_db > 20 and not found.floats


def test_a_result_with_a_float_reader_is_not_quantized(model: ModelSpec, tmp_path: Path) -> None:
    file = onnx.load(model.location)
    file.graph.node[1].op_type = "Sigmoid"
    onnx.save(file, model.location)
    quantize_model(model, tmp_path / "q.onnx", "min-max")
    nodes = onnx.load(tmp_path / "q.onnx").graph.node
    (product,) = (node for node in nodes if node.name == "one")
    assert [node.op_type for node in nodes if product.output[0] in node.input] == ["Sigmoid"]
    assert types_of(model, tmp_path / "q.onnx") == ["uint8"] * 3


def test_a_given_layer_stays_in_float32(model: ModelSpec, tmp_path: Path) -> None:
    found = quantize_model(model, tmp_path / "q.onnx", "min-max", ["two"])
    assert found is not None and found.method == "min-max"
    assert [layer.name for layer in found.loss.layers] == ["one", "three"]
    assert types_of(model, tmp_path / "q.onnx") == ["uint8", "float32", "uint8"]


def test_the_layer_with_the_largest_loss_stays_in_float32_if_needed(model: ModelSpec, tmp_path: Path) -> None:
    plain = quantize_model(model, tmp_path / "q.onnx", "min-max")
    found = quantize_model(model, tmp_path / "q.onnx", "min-max", target_db=150)
    assert plain is not None and found is not None
    (layer,) = found.floats
    assert layer.name == max(plain.loss.layers, key=lambda layer: layer.lost_db).name
    assert layer.before_db == plain.loss.sqnr_db < found.loss.sqnr_db
    assert types_of(model, tmp_path / "q.onnx").count("float32") == 1


def test_samples_determine_the_ranges(model: ModelSpec, tmp_path: Path) -> None:
    np.save(tmp_path / "dim.npy", 0.01 * np.random.default_rng(1).standard_normal((3, *SHAPE)))
    quantize_model(model, tmp_path / "bright.onnx", "min-max")
    quantize_model(replace(model, samples=str(tmp_path / "dim.npy")), tmp_path / "dim.onnx", "min-max")
    scales: list[Any] = [
        {each.name: numpy_helper.to_array(each) for each in onnx.load(tmp_path / name).graph.initializer}["x_scale"]
        for name in ("bright.onnx", "dim.onnx")
    ]
    assert 50 < scales[0] / scales[1] < 200


def test_a_quantized_model_is_copied(model: ModelSpec, tmp_path: Path) -> None:
    quantize_model(model, tmp_path / "q.onnx", "min-max")
    again = replace(model, source=f"onnx:{tmp_path / 'q.onnx'}")
    assert quantize_model(again, tmp_path / "again.onnx") is None
    assert types_of(model, tmp_path / "again.onnx") == ["uint8"] * 3


@pytest.mark.parametrize("operator", ["QLinearConv", "MatMulInteger", "DynamicQuantizeLinear", "MatMulNBits", "QGemm"])
def test_all_forms_of_quantized_operators_are_recognized(operator: str) -> None:
    assert precision_of([operator]) != "float32" == precision_of(["QuickGelu"])


def test_unknown_layers_and_samples_that_do_not_fit_are_rejected(model: ModelSpec, tmp_path: Path) -> None:
    def assert_rejected(message: str, given: ModelSpec = model, floats: tuple[str, ...] = ()) -> None:
        with pytest.raises(AnoleError, match=re.escape(message)):
            quantize_model(given, tmp_path / "q.onnx", "min-max", floats)
        assert not (tmp_path / "q.onnx").exists()

    assert_rejected("model net: has no layer 'four'; it has one, two, three", floats=("four",))
    np.save(tmp_path / "small.npy", np.zeros((2, 1, 8, 4, 4)))
    assert_rejected(
        "small.npy: found shape (2, 1, 8, 4, 4) for input x", replace(model, samples=str(tmp_path / "small.npy"))
    )
    np.save(tmp_path / "nan.npy", np.full((1, *SHAPE), np.nan))
    assert_rejected("found values that are not finite numbers", replace(model, samples=str(tmp_path / "nan.npy")))
    assert_rejected("found no file", replace(model, source="onnx:absent.onnx"))


def test_the_table_lists_all_layers_and_those_in_float32(model: ModelSpec, tmp_path: Path) -> None:
    found = quantize_model(model, tmp_path / "q.onnx", "min-max", ["two"])
    assert found is not None
    shown = rendered(render_quantized("net", found), width=100)
    assert f"net: {found.loss.sqnr_db:.1f} dB with min-max" in shown and "in float32: two" in shown
    assert "without which" not in shown
    assert all(f"{layer.name}" in shown and f"{layer.sqnr_db:.1f}" in shown for layer in found.loss.layers)


@pytest.mark.guard
def test_a_torch_network_is_exported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    model = ModelSpec("net", "torch:tiny_networks:residual", {"image": (1, 3, 16, 16)})
    found = quantize_model(model, tmp_path / "q.onnx")
    assert found is not None and found.loss.sqnr_db > 30 and len(found.loss.layers) == 4
    assert [value.name for value in onnx.load(tmp_path / "q.onnx").graph.input] == ["image"]
