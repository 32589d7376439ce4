"""Dynamic dimensions of ONNX files, fixed by an input's shape or by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from anole.config.entries import ModelSpec
from anole.errors import ExtractError
from anole.extract.load import load_model
from anole.extract.onnx.dimensions import fix_inputs, input_infos

from ..passes.building import run
from .models import model_of, reference, value

Dims = list[int | str | None]


def write(*shapes: Dims | None) -> onnx.ModelProto:
    """Write and return a model that adds its inputs a, b, ..."""
    inputs = [value(name, shape) for name, shape in zip("abcd", shapes, strict=False)]
    node = helper.make_node("Add" if len(inputs) == 2 else "Sum", [each.name for each in inputs], ["sum"])
    proto = model_of(helper.make_graph([node], "net", inputs, [value("sum", shapes[0])]))
    onnx.save(proto, "net.onnx")
    return proto


def shapes_of(*shapes: Dims | None, **given: dict[str, object]) -> list[tuple[int, ...]]:
    model = ModelSpec("net", "onnx:net.onnx", **given)  # type: ignore[arg-type]
    return [info.shape for info in input_infos(model, write(*shapes))]


@pytest.mark.parametrize("dims", [[-1, 3, "?", "?"], ["n", 3, "n", "n"], [None, 3, None, None], [-1, 3, -1, -1]])
def test_an_input_shape_fixes_all_dynamic_dimensions(project: Path, dims: Dims) -> None:
    assert shapes_of(dims, inputs={"a": (1, 3, 48, 192)}) == [(1, 3, 48, 192)]


def test_a_dimension_is_fixed_by_name(project: Path) -> None:
    found = shapes_of(["n", "t", 4], ["n", 1, 4], dims={"n": 2, "t": 7})
    assert found == [(2, 7, 4), (2, 1, 4)]
    assert shapes_of(["n", "t"], ["n", "u"], inputs={"b": (2, 5)}, dims={"n": 2, "t": 7}) == [(2, 7), (2, 5)]
    assert shapes_of(None, inputs={"a": (2, 5)}) == [(2, 5)]


@pytest.mark.parametrize(
    ("shapes", "given", "message"),
    [
        (
            [["n", -1, 4]],
            {"dims": {"n": 2}},
            "input a has the dynamic shape [n, ?, 4]; fix it in `inputs`, such as {a: [2, 1, 4]}",
        ),
        ([["n", "time", 4]], {"dims": {"n": 2}}, "such as {a: [2, 1, 4]}, or by name in `dims`, such as {time: 1}"),
        (
            [["n", "time"]],
            {"dims": {"tim": 2}},
            "dims: found 'tim', which is not a dynamic dimension of any input of net.onnx; did you mean 'time'? "
            "allowed: n, time",
        ),
        (
            [["n", 4, -1]],
            {"inputs": {"a": (3, 5, 1)}, "dims": {"n": 2}},
            "input a: found shape [3, 5, 1]; the file has [2, 4, any]",
        ),
        ([None], {}, "has no shape; set it in `inputs`"),
        ([[1], [1]], {"inputs": {"z": (1,)}}, "inputs: found 'z'; net.onnx has a, b"),
    ],
)
def test_missing_or_contradictory_shapes_are_reported(
    project: Path, shapes: list[Dims | None], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ExtractError) as caught:
        shapes_of(*shapes, **given)
    assert str(caught.value).endswith(message)


def test_shapes_of_other_values_are_removed(project: Path) -> None:
    proto = write(["n", 4])
    proto.graph.value_info.append(value("sum", ["n", 4]))
    fix_inputs(proto, input_infos(ModelSpec("net", "onnx:net.onnx", dims={"n": 2}), proto))
    assert [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim] == [2, 4]
    assert not proto.graph.value_info and not proto.graph.output[0].type.tensor_type.HasField("shape")
    assert proto.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


def test_a_file_with_dynamic_dimensions_matches_onnx_runtime(project: Path) -> None:
    write([-1, "t"], ["n", "t"])
    imported = load_model(ModelSpec("net", "onnx:net.onnx", {"a": (2, 3)}, dims={"n": 1, "t": 3}))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3)).astype(np.float32), rng.standard_normal((1, 3)).astype(np.float32)
    np.testing.assert_allclose(run(imported.module, a, b), reference("net.onnx", {"a": a, "b": b})[0], rtol=1e-6)
