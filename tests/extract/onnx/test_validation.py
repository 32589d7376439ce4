"""Validation of ONNX files: a violation raises one error with its location and the allowed values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from anole.config.entries import ModelSpec
from anole.errors import ExtractError
from anole.extract.load import load_model
from anole.extract.onnx.importer import input_infos, read_onnx
from anole.extract.onnx.validation import MAX_NODES

from ...examples import examples
from .models import model_of

NET = ModelSpec("net", "onnx:net.onnx")


def make() -> ModelProto:
    """Return a model with a convolution, a product with a constant, and a mask that contains an infinity."""
    rng = np.random.default_rng(0)
    constants = {
        "weight": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "scale": rng.standard_normal(4).astype(np.float32),
        "mask": np.array([0, -np.inf, 0, 0], np.float32),
        "shape": np.array([1, 4, 49]),
    }
    graph = """(float[1,3,9,9] x) => (float[] y) <float[1,4,7,7] c> {
        [conv] c = Conv <dilations = [1, 1], group = 1, strides = [1, 1]> (x, weight)
        [flat] r = Reshape (c, shape)
        [two] two = Constant <value = float {2.0}> ()
        [double] y = Mul (r, two)
        [top] unused = Max (scale, mask)
    }"""
    model = model_of(graph, **constants)
    model.ir_version = 10
    return model


def put(tensor: TensorProto, number: float) -> None:
    """Write a value into a weight."""
    changed = numpy_helper.to_array(tensor).copy()
    changed.flat[5] = number
    tensor.raw_data = bytes(changed.tobytes())


def nest(model: ModelProto, levels: int) -> None:
    """Move the model's nodes into nested subgraphs."""
    for _ in range(levels):
        branch = helper.make_graph(list(model.graph.node), "branch", [], list(model.graph.output))
        del model.graph.node[:]
        model.graph.node.append(helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch))


def add_function(model: ModelProto, name: str, calls: list[str]) -> onnx.FunctionProto:
    """Add a function of domain f that calls functions or operators in sequence."""
    known = {function.name for function in model.functions} | {"Once", "Twice"}
    function = model.functions.add(name=name, domain="f", input=["v0"], output=[f"v{len(calls)}"])
    function.opset_import.extend([helper.make_opsetid("", 17), helper.make_opsetid("f", 1)])
    for index, call in enumerate(calls):
        inputs = [] if call == "Constant" else [f"v{index}"]
        function.node.add(op_type=call, domain="f" if call in known else "", input=inputs, output=[f"v{index + 1}"])
    if len(model.opset_import) == 1:
        model.opset_import.add(domain="f", version=1)
    return function


VIOLATIONS = [
    ("m.opset_import[0].version = -5", "found opset -5; use one from 1 to 28"),
    ("m.opset_import[0].version = 9999", "found opset 9999; use one from 1 to 28"),
    ("m.ClearField('opset_import')", "found opset none; use one from 1 to 28"),
    ("m.opset_import.add(version=3)", "found opset 17 and 3; use one from 1 to 28"),
    ("m.ir_version = 99", "breaks ONNX's format: Your model ir_version 99"),
    ("given.elem_type = 0", "input 'x': found element type UNDEFINED (0); allowed: DOUBLE, INT64, "),
    ("given.elem_type = 99", "input 'x': found element type 99; allowed: "),
    ("m.graph.output[0].ClearField('type')", "output 'y': found element type UNDEFINED (0); allowed: "),
    (
        "m.graph.output[0].type.sequence_type.elem_type.tensor_type.SetInParent()",
        "output 'y': found a sequence_type; only tensors are allowed",
    ),
    ("weight.data_type = 99", "tensor 'weight': found element type 99; allowed: "),
    ("weight.data_type = TensorProto.STRING", "tensor 'weight': found element type STRING (8); allowed: "),
    (
        "conv['dilations'].ints[0] = 0",
        "operator Conv 'conv': dilations: found [0, 1]; each must be from 1 to 2147483647",
    ),
    ("conv['strides'].ints[1] = -1", "Conv 'conv': strides: found [1, -1]; each"),
    ("conv['group'].i = 0", "Conv 'conv': group: found [0]; each must be from 1"),
    (
        "nodes[0].attribute.append(helper.make_attribute('pads', [2**62, 0, 0, 0]))",
        "Conv 'conv': pads: found [4611686018427387904, 0, 0, 0]; each must be from",
    ),
    (
        "nodes[3].attribute.append(helper.make_attribute('alpha', NAN))",
        "operator Mul 'double': alpha: found NaN; expected a number",
    ),
    (
        "given.shape.dim[0].dim_value = 2**62",
        "input 'x': found shape [4611686018427387904, 3, 9, 9]; a tensor has at most 2147483648 elements",
    ),
    ("given.shape.dim[0].dim_value = -2", "input 'x': found shape [-2, 3, 9, 9]; each extent must be at least 1"),
    (
        "m.graph.value_info[0].type.tensor_type.shape.dim[0].dim_value = 2**62",
        "value 'c': found shape [4611686018427387904, 4, 7, 7]; a tensor has at most",
    ),
    ("weight.dims[0] = 2**62", "tensor 'weight': found shape [4611686018427387904, 3, 3, 3]; a tensor has at most"),
    ("weight.dims[0] = -4", "tensor 'weight': found shape [-4, 3, 3, 3]; each extent must be at least 0"),
    ("weight.dims[0] = 2**24", "tensor 'weight': found 432 bytes; shape [16777216, 3, 3, 3] has 1811939328"),
    (
        "weights.extend([TensorProto(name=str(i), data_type=1, dims=[2**31 // 4, 1], raw_data=b'') for i in range(9)])",
        "tensor '0': found 0 bytes; shape [536870912, 1] has 2147483648",
    ),
    (
        "weight.float_data.append(1)",
        "tensor 'weight': found values in raw_data and float_data; only one field may be set",
    ),
    ("put(weight, NAN)", "tensor 'weight': 1 of 108 values are not a number (NaN); weights must be finite"),
    ("put(weight, float('inf'))", "tensor 'weight': 1 of 108 values are infinite; weights"),
    (
        "nodes[2].attribute[0].t.float_data[0] = NAN; nodes[3].op_type = 'MatMul'",
        "value of operator Constant 'two': 1 of 1 values are not a number",
    ),
    ("nodes[3].domain = 'evil'", "operator Mul 'double': found domain 'evil'; allowed: '', 'ai.onnx', 'com.microsoft'"),
    (
        "add_function(m, 'Once', ['Twice']), add_function(m, 'Twice', ['Once'])",
        "a function calls itself: Once calls Twice calls Once",
    ),
    (
        "for i in range(40): add_function(m, f'f{i}', [f'f{i - 1}'] * 2 if i else ['Relu'])",
        "has more than 100000 operators",
    ),
    (
        "add_function(m, 'Twice', ['Relu']), add_function(m, 'Twice', ['Abs'])",
        "two functions have the same name and domain",
    ),
    (
        "add_function(m, 'Twice', ['Relu']).node[0].domain = 'evil'",
        "function 'Twice': operator Relu 'v1': found domain 'evil'; allowed: '', 'ai.onnx', 'com.microsoft'",
    ),
    (
        "twice = add_function(m, 'Twice', ['Constant', 'MatMul']).node; twice[1].input.append('v1'); "
        "twice[0].attribute.append(helper.make_attribute('value', helper.make_tensor('', 1, [1], [NAN])))",
        "function 'Twice': value of operator Constant 'v1': 1 of 1 values are not a number",
    ),
    ("nodes[3].op_type = 'Wobble'", "No Op registered for Wobble"),
    ("nodes[0].input[0] = 'y'", "Nodes in a graph must be topologically sorted"),
    ("nodes[0].input[0] = 'z'", "Nodes in a graph must be topologically"),
    ("nodes[3].output[0] = 'c'", "'c' has been used as output names"),
    ("weight.ClearField('name')", "Field 'name' of 'init'"),
    ("m.graph.input.add().CopyFrom(helper.make_tensor_value_info('', 1, [1]))", "name"),
    ("weights.append(weight)", "weight initializer name is not unique"),
    ("m.graph.output.append(m.graph.output[0])", "output 'y' is declared 2 times"),
    ("m.graph.sparse_initializer.add(values=weight)", "net.onnx: found a sparse tensor; only dense ones are allowed"),
    ("nest(m, 9)", "subgraphs are nested 9 deep; the maximum is 8"),
    (f"nodes.extend([onnx.NodeProto()] * {MAX_NODES + 1})", "has more than 100000 operators"),
]
"""Changes of the model, and the expected messages."""


@pytest.mark.parametrize(("change", "message"), VIOLATIONS)
def test_violations_are_reported_with_their_location(project: Path, change: str, message: str) -> None:
    model = make()
    nodes, weights = model.graph.node, model.graph.initializer
    names = {"m": model, "nodes": nodes, "weights": weights, "weight": weights[0], "NAN": float("nan")}
    names |= {"conv": {each.name: each for each in nodes[0].attribute}, "given": model.graph.input[0].type.tensor_type}
    exec(change, globals() | names)
    Path("net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ExtractError) as caught:
        read_onnx(NET)
    assert str(caught.value).startswith("model net: net.onnx: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("data", ["", "weights/net.data"])
def test_valid_models_are_imported(project: Path, opset: int, data: str) -> None:
    model = make()
    model.opset_import[0].version = opset
    model.opset_import.add(domain="com.microsoft", version=1)
    if data:
        Path("weights").mkdir()
        onnx.external_data_helper.convert_model_to_external_data(model, location=data, size_threshold=0)
    onnx.save(model, "net.onnx")
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in read_onnx(NET).graph.initializer}
    expected = {tensor.name: numpy_helper.to_array(tensor) for tensor in make().graph.initializer}
    assert all(np.array_equal(weights[name], array) for name, array in expected.items())
    assert load_model(NET).outputs[0].shape == (1, 4, 49)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda data: np.float32("nan").tobytes() + data[4:], "tensor 'weight': 1 of 108 values are not a number"),
        (lambda data: data[:400], r"in 'net\.data' up to byte \d+; that file has 400 bytes"),
        (None, r"in 'net\.data', but there is no such file"),
    ],
)
def test_external_weights_are_checked(project: Path, content: Callable[[bytes], bytes] | None, message: str) -> None:
    model = make()
    onnx.external_data_helper.convert_model_to_external_data(model, location="net.data", size_threshold=0)
    onnx.save(model, "net.onnx")
    data = Path("net.data")
    if content is None:
        data.unlink()
    else:
        data.write_bytes(content(data.read_bytes()))
    with pytest.raises(ExtractError, match=message):
        read_onnx(NET)


def test_external_weights_without_a_length_must_fit_their_shape(project: Path) -> None:
    loose = make()
    loose.graph.initializer[0].ClearField("raw_data")
    loose.graph.initializer[0].data_location = TensorProto.EXTERNAL
    loose.graph.initializer[0].external_data.add(key="location", value="net.data")
    Path("net.onnx").write_bytes(loose.SerializeToString())
    Path("net.data").write_bytes(bytes(500))
    with pytest.raises(ExtractError, match=r"tensor 'weight': found 500 bytes; shape .* has 432"):
        read_onnx(NET)


def test_undeclared_values_are_limited(project: Path) -> None:
    model = make()
    model.graph.initializer.append(numpy_helper.from_array(np.array([2**24, 1, 1, 1]), "huge"))
    model.graph.node[3].input[1] = "grown"
    model.graph.node.insert(3, helper.make_node("ConstantOfShape", ["huge"], ["grown"], "grow"))
    Path("net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ExtractError, match=r"has the shape \[16777216, 1, 4, 49\]; a value has at most 2147483648"):
        load_model(NET)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_damaged_files_raise_only_expected_errors(project_once: Path, data: st.DataObject) -> None:
    content = bytearray(make().SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        offset = data.draw(st.integers(0, len(content) - 1))
        content[offset] = data.draw(st.integers(0, 255) | st.sampled_from([content[offset] ^ 1, 0, 255]))
    Path("net.onnx").write_bytes(content)
    try:
        assert input_infos(NET, read_onnx(NET))
    except ExtractError as error:
        assert "\n" not in str(error)
