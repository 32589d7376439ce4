"""Models from ONNX files, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from anole.declared.entries import ModelSpec
from anole.errors import ExtractError
from anole.evaluate.engines import onnxruntime_session
from anole.extract.graph import find_layers
from anole.extract.load import load_model
from anole.task import Conv2d, Dense


def write(path: Path, shape: Sequence[int | str] = (1, 3, 9, 9), last: str = "Relu") -> None:
    """Writes a convolution, a transposed one, a flattening, a matrix product and one more operator."""
    rng = np.random.default_rng(0)
    weights = {
        "conv.weight": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "conv.bias": rng.standard_normal(8).astype(np.float32),
        "up.weight": rng.standard_normal((8, 4, 2, 2)).astype(np.float32),
        "fc.weight": rng.standard_normal((5, 4 * 196)).astype(np.float32),
        "fc.bias": rng.standard_normal(5).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["image", "conv.weight", "conv.bias"], ["c"], "conv"),
        helper.make_node("ConvTranspose", ["c", "up.weight"], ["u"], "up", strides=[2, 2]),
        helper.make_node("Flatten", ["u"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "fc.weight", "fc.bias"], ["g"], "fc", transB=1),
        helper.make_node(last, ["g"], ["scores"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)


@pytest.mark.parametrize("shape", [(1, 3, 9, 9), ("batch", 3, 9, 9)])
def test_a_file_is_imported_with_its_names(project: Path, shape: tuple[int | str, ...]) -> None:
    write(Path("net.onnx"), shape)
    fixed = {} if shape[0] == 1 else {"image": (1, 3, 9, 9)}
    imported = load_model(ModelSpec("net", "onnx:net.onnx", fixed))
    layers = find_layers(imported)
    convolutions = [Conv2d(1, 9, 9, 3, 8, (3, 3)), Conv2d(1, 7, 7, 8, 16, (1, 1))]
    assert [layer.workload for layer in layers] == [*convolutions, Dense(1, 784, 5)]
    assert [layer.name for layer in layers] == ["conv", "up", "fc"]
    assert [info.name for info in (*imported.inputs, *imported.outputs)] == ["image", "scores"]
    image = np.random.default_rng(1).standard_normal((1, 3, 9, 9)).astype(np.float32)
    executable = tvm.compile(imported.module, tvm.target.Target({"kind": "llvm"}))
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(image))
    session = onnxruntime_session("net.onnx", 1)
    np.testing.assert_allclose(found.numpy(), session.run(None, {"image": image})[0], rtol=1e-4, atol=1e-4)


def error_of(source: str, inputs: dict[str, tuple[int, ...]]) -> str:
    with pytest.raises(ExtractError) as caught:
        load_model(ModelSpec("net", source, inputs))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_file(project: Path) -> None:
    assert "found no file nowhere.onnx" in error_of("onnx:nowhere.onnx", {})


@pytest.mark.parametrize("keep", [0, 40, 500])
def test_a_damaged_file(project: Path, keep: int) -> None:
    write(Path("net.onnx"))
    Path("net.onnx").write_bytes(Path("net.onnx").read_bytes()[:keep])
    assert "net.onnx is not an ONNX file, or is damaged" in error_of("onnx:net.onnx", {})


def test_a_dynamic_shape(project: Path) -> None:
    write(Path("net.onnx"), ("batch", 3, 9, 9))
    message = error_of("onnx:net.onnx", {})
    assert "input image has the dynamic shape [batch, 3, 9, 9]" in message
    assert "{image: [1, 3, 9, 9]}" in message


def test_a_shape_that_the_file_contradicts(project: Path) -> None:
    write(Path("net.onnx"), ("batch", 3, 9, 9))
    assert "found shape [1, 4, 9, 9]; the file has" in error_of("onnx:net.onnx", {"image": (1, 4, 9, 9)})


def test_an_unknown_input(project: Path) -> None:
    write(Path("net.onnx"))
    assert "found 'x'; net.onnx has image" in error_of("onnx:net.onnx", {"x": (1, 3, 9, 9)})


def test_an_unsupported_operator(project: Path) -> None:
    write(Path("net.onnx"), last="RandomNormalLike")
    assert "RandomNormalLike 'last': there is no converter" in error_of("onnx:net.onnx", {})
