"""External weights of an ONNX file are found in all tensors, and accepted only in its folder; and its names."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper

from anole.config.onnx_files import OnnxFileError, OnnxNames, external_files, onnx_names
from anole.config.source import check_source, model_files
from anole.errors import SpecError
from anole.node import Node


def tensor_in(location: str, name: str = "w", **entries: object) -> TensorProto:
    """Return a tensor with 16 bytes of external data."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def graph_of(*initializers: TensorProto) -> GraphProto:
    return GraphProto(name="g", initializer=initializers)


def model_with_external_tensors() -> ModelProto:
    """Return a model with an external tensor, each in its own file, everywhere the format allows one."""
    inner = graph_of(tensor_in("subgraph"))
    inner.node.add(op_type="Constant").attribute.append(helper.make_attribute("value", tensor_in("subgraph_constant")))
    node = helper.make_node("If", ["x"], ["y"])
    node.attribute.append(helper.make_attribute("then_branch", inner))
    node.attribute.append(AttributeProto(name="g", type=AttributeProto.GRAPHS, graphs=[graph_of(tensor_in("graphs"))]))
    node.attribute.append(AttributeProto(name="t", type=AttributeProto.TENSORS, tensors=[tensor_in("tensors")]))
    sparse = onnx.SparseTensorProto(values=tensor_in("values"), indices=tensor_in("indices"), dims=[4])
    node.attribute.append(AttributeProto(name="s", type=AttributeProto.SPARSE_TENSOR, sparse_tensor=sparse))
    several = AttributeProto(name="ss", type=AttributeProto.SPARSE_TENSORS)
    several.sparse_tensors.add(values=tensor_in("sparse_tensors"))
    node.attribute.append(several)
    graph = graph_of(tensor_in("initializer"), numpy_helper.from_array(np.ones(9, np.float32), "inside"))
    graph.node.append(node)
    graph.sparse_initializer.add(values=tensor_in("sparse_initializer"))
    function = onnx.FunctionProto(name="f", domain="d", node=[node])
    function.node[0].attribute[0].g.initializer[0].external_data[0].value = "function"
    function.attribute_proto.append(helper.make_attribute("default", tensor_in("default")))
    model = ModelProto(ir_version=10, graph=graph, functions=[function])
    model.training_info.add(initialization=graph_of(tensor_in("training")), algorithm=graph_of(tensor_in("algorithm")))
    return model


EVERYWHERE = (
    "algorithm default function graphs indices initializer sparse_initializer sparse_tensors subgraph "
    "subgraph_constant tensors training values"
).split()


def save(folder: Path, model: ModelProto, *data: str) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    for name in data:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(16))
    return path


def damage(data: st.DataObject, model: ModelProto) -> bytes:
    """Return a model's bytes with some changed."""
    content = bytearray(model.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    return bytes(content)


def test_tensors_are_found_everywhere_in_the_format(tmp_path: Path) -> None:
    path = save(tmp_path, model_with_external_tensors(), *EVERYWHERE)
    assert [str(file) for file in external_files(path, strict=True)] == EVERYWHERE
    (tmp_path / "net").mkdir()
    deeper = tmp_path / "net" / "b.onnx"
    deeper.write_bytes(ModelProto(graph=graph_of(tensor_in("sub/b.data"))).SerializeToString())
    save(tmp_path / "net", ModelProto(), "sub/b.data")
    assert model_files("onnx:net/b.onnx", tmp_path) == [Path("net/b.onnx"), Path("net/sub/b.data")]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (tensor_in("../data"), "its weights are in '../data'; it must be a file in the folder"),
        (tensor_in("a/../../data"), "it must be a file in the folder of the ONNX file or a subfolder"),
        (tensor_in("/etc/passwd"), "it must be a file in the folder of the ONNX file or a subfolder"),
        (tensor_in(""), "it must be a file in the folder of the ONNX file or a subfolder"),
        (tensor_in("missing"), "tensor 'w': its weights are in 'missing', but there is no such file"),
        (tensor_in("folder"), "in 'folder', but there is no such file"),
        (tensor_in("nul\0"), "in 'nul\\x00', but there is no such file"),
        (tensor_in("x" * 300), "but there is no such file"),
        (tensor_in("link"), "in 'link', a link to another folder; it must"),
        (tensor_in("folder_link/data"), "a link to another folder"),
        (tensor_in("data", offset=8, length=9), "in 'data' up to byte 17; that file has 16 bytes"),
        (tensor_in("data", offset=17), "in 'data' up to byte 17; that file has 16 bytes"),
        (tensor_in("data", offset=-1), "in 'data' at '-1'; a number of bytes is expected"),
        (tensor_in("data", length="1" * 5000), "a number of bytes is expected"),
        (tensor_in("data", length="\u0663"), "a number of bytes is expected"),
    ],
    ids=lambda value: None if isinstance(value, str) else value.external_data[0].value[:20].replace("\0", "0"),
)
def test_weights_outside_the_folder_are_rejected(tmp_path: Path, tensor: TensorProto, message: str) -> None:
    project = tmp_path / "project"
    (project / "folder").mkdir(parents=True)
    (tmp_path / "data").write_bytes(bytes(16))
    (project / "link").symlink_to(tmp_path / "data")
    (project / "folder_link").symlink_to(tmp_path)
    save(project, ModelProto(graph=graph_of(tensor)), "data")
    with pytest.raises(SpecError) as caught:
        check_source(Node("onnx:net.onnx", "models.m.source", "models.yaml"), project)
    assert str(caught.value).startswith("models.yaml: models.m.source: net.onnx: tensor 'w': ")
    assert message in str(caught.value) and len(str(caught.value)) < 400


def test_links_within_the_folder_are_followed(tmp_path: Path) -> None:
    path = save(tmp_path, ModelProto(graph=graph_of(tensor_in("link"))), "data")
    (tmp_path / "link").symlink_to("data")
    assert external_files(path) == [Path("link")]


@given(st.data())
def test_a_damaged_file_names_no_other_files(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder, content = tmp_path_factory.getbasetemp(), damage(data, model_with_external_tensors())
    path = save(folder, ModelProto(), *EVERYWHERE)
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), 100]))])
    try:
        found = {str(file) for file in external_files(path, strict=True)}
    except OnnxFileError:
        return
    assert found <= set(EVERYWHERE)
    try:
        read = onnx.load_model_from_string(path.read_bytes())
    except DecodeError:
        return
    tensors = onnx.external_data_helper._get_all_tensors(read)
    outer = [each for each in tensors if each.data_location == TensorProto.EXTERNAL]
    assert {
        os.path.normpath(entry.value) for each in outer for entry in each.external_data if entry.key == "location"
    } <= found


def model_with_names() -> ModelProto:
    """Return a model with names of every kind, including some that an entry cannot use."""
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
    onnx.save(model_with_names(), tmp_path / "net.onnx")
    assert onnx_names(tmp_path / "net.onnx") == OnnxNames(
        inputs=("x", "yes", "z"), symbols=("batch", "?", "größe"), computed=("a", "b", "y")
    )


def test_a_file_that_cannot_be_read_has_no_names(tmp_path: Path) -> None:
    assert onnx_names(tmp_path / "missing.onnx") is None
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "half.onnx").write_bytes(model_with_names().SerializeToString()[:-7])
    assert onnx_names(tmp_path / "empty.onnx") is None and onnx_names(tmp_path / "half.onnx") is None


@given(st.data())
def test_a_damaged_file_causes_no_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.unlink(missing_ok=True)
    path.write_bytes(damage(data, model_with_names()))
    found = onnx_names(path)
    assert found is None or all(isinstance(name, str) for name in (*found.inputs, *found.symbols, *found.computed))
