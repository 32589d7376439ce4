"""A prepared file computes what the original computes, and holds only what can be imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.helper import make_node

from anole.documents.build import TensorInfo
from anole.errors import ExtractError
from anole.evaluate.engines import onnxruntime_session
from anole.extract.onnx.dimensions import dtype_of
from anole.extract.onnx.frontend import operators
from anole.extract.onnx.prepare import count_operators, differences, prepare

Feeds = Mapping[str, NDArray[Any]]

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def value(name: str, shape: Sequence[int | str] | None = None, kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[NodeProto],
    outputs: Sequence[ValueInfoProto] = (),
    opset: int = 17,
    inputs: Sequence[ValueInfoProto] = (),
    **weights: NDArray[Any],
) -> ModelProto:
    """Returns a model with the input x of shape [n, 3, c] and the output y, unless others are given."""
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    given, results = list(inputs) or [value("x", ["n", 3, "c"])], list(outputs) or [value("y")]
    graph = helper.make_graph(nodes, "net", given, results, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9 if opset < 22 else 11)


def run(proto: ModelProto, feeds: Feeds) -> list[NDArray[Any]]:
    session = onnxruntime_session(proto.SerializeToString(), 1)
    return [np.asarray(each) for each in session.run(None, dict(feeds))]


def prepared(proto: ModelProto, feeds: Feeds | None = None) -> list[str]:
    """Returns the operators of a prepared model, after comparing the model with the original."""
    feeds = feeds or {"x": X}
    expected = run(proto, feeds)
    kinds = {each.name: dtype_of(each) for each in proto.graph.input}
    infos = tuple(TensorInfo(name, array.shape, kinds[name]) for name, array in feeds.items())
    result = prepare(proto, infos, operators(), "model net: net.onnx")
    for found, wanted in zip(run(result, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert [each.name for each in result.graph.output] == [each.name for each in proto.graph.output]
    return [node.op_type for node in result.graph.node]


def problem_of(proto: ModelProto, feeds: Feeds | None = None) -> str:
    infos = tuple(TensorInfo(name, array.shape, str(array.dtype)) for name, array in (feeds or {"x": X}).items())
    with pytest.raises(ExtractError) as caught:
        prepare(proto, infos, operators(), "model net: net.onnx")
    assert str(caught.value).startswith("model net: net.onnx: ") and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("opset", [11, 17])
def test_arithmetic_on_shapes_becomes_constant(opset: int) -> None:
    nodes = [
        make_node("Shape", ["x"], ["shape"]),
        make_node("Gather", ["shape", "last"], ["c"]),
        make_node("Mul", ["c", "three"], ["size"]),
        make_node("Concat", ["one", "size"], ["target"], axis=0),
        make_node("Reshape", ["x", "target"], ["flat"]),
        make_node("ConstantOfShape", ["target"], ["bias"], value=helper.make_tensor("", TensorProto.FLOAT, [1], [2.0])),
        make_node("Add", ["flat", "bias"], ["y"]),
    ]
    three, one = np.array([3]), np.array([-1])
    proto = model(
        [*nodes[:5], make_node("Identity", ["flat"], ["y"])], last=np.array([2]), three=three, one=one, opset=opset
    )
    assert [name for name in prepared(proto) if name != "Identity"] == ["Reshape"]
    proto = model(nodes, last=np.array([2]), three=three, one=np.array([2]), opset=opset)
    assert prepared(proto) == ["Reshape", "Add"]


def test_weights_that_are_declared_as_inputs_too_are_constant() -> None:
    nodes = [make_node("Mul", ["size", "two"], ["target"]), make_node("Reshape", ["x", "target"], ["y"])]
    proto = model(nodes, size=np.array([3, 4]), two=np.array([2, 1]))
    proto.graph.input.extend(value(name, [2], TensorProto.INT64) for name in ("size", "two"))
    assert prepared(proto) == ["Reshape"]


def test_large_constants_are_not_computed() -> None:
    nodes = [
        make_node("ConstantOfShape", ["huge"], ["zeros"]),
        make_node("Expand", ["one", "huge"], ["ones"]),
        make_node("Range", ["start", "limit", "step"], ["numbers"]),
        make_node("Gather", ["zeros", "place"], ["a"]),
        make_node("Gather", ["ones", "place"], ["b"]),
        make_node("Gather", ["numbers", "place"], ["c"]),
        make_node("Sum", ["x", "a", "b", "c"], ["y"]),
    ]
    scalars = {"start": np.float32(0), "limit": np.float32(2**27), "step": np.float32(1)}
    sizes = {"huge": np.array([2**27]), "one": np.float32([1]), "place": np.array([5])}
    proto = model(nodes, **sizes, **{name: np.array(number) for name, number in scalars.items()})
    result = prepare(proto, (TensorInfo("x", (2, 3, 4), "float32"),), operators(), "net")
    assert [node.op_type for node in result.graph.node] == [node.op_type for node in nodes]
    assert result.ByteSize() < 10_000


def function(
    name: str, inputs: list[str], nodes: list[NodeProto], opset: int = 17, attributes: Sequence[str] = ()
) -> Any:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, inputs, ["out"], nodes, opsets, list(attributes))


def test_functions_of_the_file_are_inlined() -> None:
    leaky = make_node("LeakyRelu", ["a"], ["r"])
    leaky.attribute.add(name="alpha", type=1, ref_attr_name="slope")
    inner = function("Inner", ["a"], [leaky, make_node("Add", ["r", "a"], ["out"])], attributes=["slope"])
    call = make_node("Inner", ["b"], ["once"], domain="f", slope=0.5)
    outer = function("Outer", ["b"], [call, make_node("Mul", ["once", "once"], ["out"])])
    nodes = [make_node("Outer", ["x"], ["z"], domain="f"), make_node("Outer", ["z"], ["y"], domain="f")]
    proto = model(nodes)
    proto.functions.extend([inner, outer])
    assert prepared(proto) == ["LeakyRelu", "Add", "Mul"] * 2


@pytest.mark.parametrize(
    ("node", "opset", "weights"),
    [
        (make_node("Attention", ["x", "x", "x"], ["y"], q_num_heads=2, kv_num_heads=2), 23, {}),
        (make_node("Swish", ["x"], ["y"], alpha=2.0), 24, {}),
        (make_node("Swish", ["x"], ["y"]), 24, {}),
        (make_node("Celu", ["x"], ["y"], alpha=2.0), 17, {}),
        (make_node("CenterCropPad", ["x", "size"], ["y"], axes=[1, 2]), 18, {"size": np.array([5, 3])}),
        (make_node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2]), 17, {}),
        (
            make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["y"], reduction="sum"),
            17,
            {"labels": np.ones((2, 4), int)},
        ),
    ],
    ids=lambda each: each.op_type if isinstance(each, NodeProto) else "",
)
def test_operators_that_onnx_defines_by_a_function_are_expanded(
    node: NodeProto, opset: int, weights: dict[str, NDArray[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = model([node], opset=opset, **weights)
    expected = reference(proto, {"x": X})
    result = prepare(proto, (TensorInfo("x", X.shape, "float32"),), operators() - {node.op_type}, "net")
    assert {each.op_type for each in result.graph.node} <= operators() - {node.op_type}
    np.testing.assert_allclose(reference(result, {"x": X}), expected, rtol=1e-4, atol=1e-5)


def test_functions_within_functions_are_expanded_in_any_order() -> None:
    labels = np.ones((2, 4), int)
    nodes = [
        make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["a"]),
        make_node("LogSoftmax", ["x"], ["p"], axis=1),
        make_node("NegativeLogLikelihoodLoss", ["p", "labels"], ["b"]),
        make_node("Add", ["a", "b"], ["y"]),
    ]
    assert {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}.isdisjoint(prepared(model(nodes, labels=labels)))


def test_an_operator_that_leaves_out_inputs_is_expanded() -> None:
    node = make_node("Attention", ["x", "x", "x", "", "", "", "lengths"], ["y"], "attend")
    proto = model([node], opset=24, inputs=[value("x", [2, 1, 4, 4])], lengths=np.array([4, 3]))
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 1, 4, 4)).astype(np.float32)}
    expected = reference(proto, feeds)
    result = prepare(proto, (TensorInfo("x", (2, 1, 4, 4), "float32"),), operators(), "net")
    assert "Attention" not in {each.op_type for each in result.graph.node}
    np.testing.assert_allclose(reference(result, feeds), expected, rtol=1e-4, atol=1e-5)


def reference(proto: ModelProto, feeds: Feeds) -> NDArray[Any]:
    """Returns the output according to the onnx package: ONNX Runtime lacks the newest operators."""
    from onnx.reference import ReferenceEvaluator

    return np.asarray(ReferenceEvaluator(proto).run(None, dict(feeds))[0])


def branch(*nodes: NodeProto, output: str) -> Any:
    return helper.make_graph(nodes, "branch", [], [value(output)])


def test_a_branch_that_depends_on_shapes_is_taken() -> None:
    squeeze = branch(make_node("Squeeze", ["x", "axis"], ["a"]), output="a")
    keep = branch(make_node("Neg", ["x"], ["b"]), output="b")
    nodes = [
        make_node("Shape", ["x"], ["shape"]),
        make_node("Gather", ["shape", "axis"], ["size"]),
        make_node("Equal", ["size", "axis"], ["is_one"]),
        make_node("If", ["is_one"], ["y"], then_branch=squeeze, else_branch=keep),
    ]
    proto = model(nodes, inputs=[value("x", ["a", "b", "c"])], axis=np.array([1]))
    assert prepared(proto) == ["Neg"]


def test_both_branches_are_computed_if_the_data_choose() -> None:
    up = branch(make_node("Exp", ["x"], ["a"]), output="a")
    down = branch(make_node("Neg", ["x"], ["m"]), make_node("Mul", ["m", "x"], ["b"]), output="b")
    nodes = [
        make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        make_node("Greater", ["sum", "zero"], ["is_large"]),
        make_node("If", ["is_large"], ["y"], then_branch=up, else_branch=down),
    ]
    for sign in (1, -1):
        proto = model(nodes, zero=np.float32(0))
        assert prepared(proto, {"x": np.abs(X) * np.float32(sign)})[-1] == "Where"


def test_branches_of_different_shapes_are_refused() -> None:
    up = branch(make_node("ReduceSum", ["x"], ["a"]), output="a")
    nodes = [
        make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        make_node("Greater", ["sum", "zero"], ["is_large"]),
        make_node(
            "If",
            ["is_large"],
            ["y"],
            "choose",
            then_branch=up,
            else_branch=branch(make_node("Exp", ["x"], ["b"]), output="b"),
        ),
    ]
    message = problem_of(model(nodes, zero=np.float32(0)))
    assert "If 'choose': its condition depends on the data, and its branches have values of different shapes" in message
    assert "`outputs: [is_large]`" in message


def loop(opset: int = 17, **sizes: Any) -> ModelProto:
    """Returns a loop with a state, a value of outside and a collected output."""
    body = helper.make_graph(
        [
            make_node("Cast", ["turn"], ["number"], to=1),
            make_node("Add", ["state", "number"], ["more"]),
            make_node("Mul", ["more", "x"], ["product"]),
            make_node("Identity", ["go"], ["go_on"]),
        ],
        "body",
        [value("turn", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("state")],
        [value("go_on", [], TensorProto.BOOL), value("more"), value("product")],
    )
    nodes = [make_node("Loop", ["count", "true", "x"], ["last", "all"], "repeat", body=body)]
    return model(nodes, [value("last"), value("all")], opset, **{"true": np.array(True), "count": np.array(3), **sizes})


@pytest.mark.parametrize("opset", [11, 17])
def test_a_loop_of_known_length_is_unrolled(opset: int) -> None:
    names = prepared(loop(opset))
    assert "Loop" not in names and names.count("Mul") == 3


def test_a_loop_whose_length_is_a_shape_is_unrolled() -> None:
    proto = loop()
    del proto.graph.initializer[1]
    proto.graph.node.insert(0, make_node("Size", ["x"], ["count"]))
    assert "Loop" not in (names := prepared(proto)) and names.count("Mul") == 24


@pytest.mark.parametrize("count", [10**6, 2**62])
def test_a_loop_that_is_too_long_is_refused(count: int) -> None:
    message = problem_of(loop(count=np.array(count)))
    assert "Loop 'repeat': its number of turns depends on the data, or is too large: 4096 operators" in message


@pytest.mark.parametrize("backward", [0, 1])
def test_a_scan_is_unrolled(backward: int) -> None:
    body = helper.make_graph(
        [make_node("Add", ["state", "row"], ["sum"]), make_node("Identity", ["sum"], ["seen"])],
        "body",
        [value("state", ["n", 4]), value("row", ["n", 4])],
        [value("sum", ["n", 4]), value("seen", ["n", 4])],
    )
    scan = make_node(
        "Scan",
        ["start", "x"],
        ["last", "all"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[2],
        scan_input_directions=[backward],
        scan_output_directions=[1],
    )
    proto = model([scan], [value("last"), value("all")], start=np.ones((2, 4), np.float32))
    assert prepared(proto).count("Add") == 3


def test_an_old_version_is_raised() -> None:
    node = make_node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0], mode="nearest")
    proto = model([node], opset=7)
    proto.ir_version = 3
    del proto.opset_import[1]
    assert "Upsample" not in prepared(proto)


def test_shapes_that_depend_on_data_are_refused_with_what_is_before() -> None:
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("Exp", ["r"], ["side"]),
        make_node("NonZero", ["r"], ["where"], "find"),
        make_node("Transpose", ["where"], ["indices"]),
        make_node("GatherND", ["side", "indices"], ["y"]),
    ]
    message = problem_of(model(nodes, [value("y"), value("side")]))
    assert "NonZero 'find': the shape of its output depends on the data" in message
    assert message.endswith("To build what is before, give the model `outputs: [r, side]`")
    nodes = [make_node("Cast", ["x"], ["whole"], to=7), make_node("Reshape", ["x", "whole"], ["y"])]
    message = problem_of(model(nodes, inputs=[value("x", ["n"])]), {"x": np.ones(1, np.float32)})
    assert "Reshape 'y': the shape of its output depends on the data" in message and "`outputs: [whole]`" in message


def test_operators_without_a_converter_are_named() -> None:
    nodes = [
        make_node("Relu", ["x"], ["r"]),
        make_node("RandomNormalLike", ["r"], ["d"], "noise"),
        make_node("Bernoulli", ["r"], ["b"], "coin"),
        make_node("Add", ["d", "b"], ["y"]),
    ]
    message = problem_of(model(nodes, [value("y")]), {"x": np.ones((1, 3, 3), np.float32)})
    assert (
        "RandomNormalLike 'noise': there is no converter for this operator" in message and "`outputs: [r]`" in message
    )


def test_what_was_changed_is_told() -> None:
    proto = loop()
    before = count_operators(proto)
    after = count_operators(prepare(proto, (TensorInfo("x", (2, 3, 4), "float32"),), operators(), "net"))
    assert differences(before, before) == ()
    changes = ("Add: 0 before, 3 after", "Concat: 0 before, 1 after", "Loop: 1 before, 0 after")
    assert differences(before, after)[:3] == changes
