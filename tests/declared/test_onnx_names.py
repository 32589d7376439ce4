"""The names in an ONNX file are those that the onnx package finds, and are read without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from anole.declared.onnx_names import OnnxNames, names_of
from anole.extract.onnx.dimensions import _dims


def model() -> ModelProto:
    """Returns a model with names of every kind, also some that no entry may use."""
    inner = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["hidden"])], "g", [], [helper.make_tensor_value_info("hidden", 1, None)]
    )
    nodes = [
        helper.make_node("Split", ["x"], ["a", "", "b"], axis=1),
        helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, -1]),
        helper.make_tensor_value_info("yes", TensorProto.BOOL, []),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", "größe", None]),
        helper.make_tensor_value_info("weight", TensorProto.FLOAT, ["unused"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, [numpy_helper.from_array(np.ones(9), "weight")])
    return helper.make_model(graph)


def test_names_of_every_kind(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "net.onnx")
    assert names_of(tmp_path / "net.onnx") == OnnxNames(
        inputs=("x", "yes", "z"), symbols=("batch", "?", "größe"), computed=("a", "b", "y")
    )


def test_a_file_that_cannot_be_read_has_no_names(tmp_path: Path) -> None:
    assert names_of(tmp_path / "missing.onnx") is None
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "half.onnx").write_bytes(model().SerializeToString()[:-7])
    assert names_of(tmp_path / "empty.onnx") is None and names_of(tmp_path / "half.onnx") is None


NAMES = st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=4, unique=True)
SHAPES = st.lists(st.sampled_from(["batch", "n", "größe", None, -1, 1, 7, 2**40]), max_size=4)


@given(NAMES, st.lists(SHAPES, min_size=4, max_size=4), NAMES)
def test_names_are_those_that_the_onnx_package_finds(
    tmp_path_factory: pytest.TempPathFactory, inputs: list[str], shapes: list[list[Any]], outputs: list[str]
) -> None:
    values = [helper.make_tensor_value_info(*each) for each in zip(inputs, [1] * 4, shapes, strict=False)]
    graph = helper.make_graph([helper.make_node("Anything", inputs, outputs)], "net", values, [])
    path = tmp_path_factory.getbasetemp() / "names.onnx"
    path.unlink(missing_ok=True)
    onnx.save(helper.make_model(graph), path)
    symbols = {size for value in values for size in _dims(value) if isinstance(size, str)}
    found = names_of(path)
    assert found is not None and (found.inputs, found.computed) == (tuple(inputs), tuple(outputs))
    assert set(found.symbols) == symbols


@given(st.data())
def test_a_damaged_file_does_no_harm(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(model().SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    found = names_of(path)
    assert found is None or all(isinstance(name, str) for name in (*found.inputs, *found.symbols, *found.computed))


def test_names_are_read_without_the_onnx_package(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "net.onnx")
    code = """
import sys
from pathlib import Path
from anole.declared.onnx_names import names_of
assert names_of(Path("net.onnx")).computed == ("a", "b", "y")
assert "onnx" not in sys.modules and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
