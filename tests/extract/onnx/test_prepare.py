"""A prepared file computes what the original computes, and holds only what can be imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, ValueInfoProto, helper
from onnx.helper import make_node

from anole.documents.build import TensorInfo
from anole.errors import ExtractError
from anole.extract.onnx.frontend import operators
from anole.extract.onnx.prepare import count_operators, differences, prepare

from .models import model_of, reference, value

Feeds = Mapping[str, NDArray[Any]]

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def model(
    nodes: Sequence[NodeProto],
    outputs: Sequence[ValueInfoProto] = (),
    opset: int = 17,
    inputs: Sequence[ValueInfoProto] = (),
    **weights: Any,
) -> ModelProto:
    """Returns a model with the input x of shape [n, 3, c] and the output y, unless others are given."""
    given, results = list(inputs) or [value("x", ["n", 3, "c"])], list(outputs) or [value("y")]
    return model_of(nodes, given, results, opset=opset, domains=["f"], **weights)


def prepared_model(proto: ModelProto, feeds: Feeds | None = None, without: str = "") -> ModelProto:
    feeds = feeds or {"x": X}
    infos = tuple(TensorInfo(name, array.shape, str(array.dtype)) for name, array in feeds.items())
    return prepare(proto, infos, operators() - {without}, "model net: net.onnx")


def prepared(proto: ModelProto, feeds: Feeds | None = None) -> list[str]:
    """Returns the operators of a prepared model, after comparing the model with the original."""
    feeds = feeds or {"x": X}
    expected = reference(proto, feeds)
    outputs = [each.name for each in proto.graph.output]
    result = prepared_model(proto, feeds)
    for found, wanted in zip(reference(result, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert [each.name for each in result.graph.output] == outputs
    return [node.op_type for node in result.graph.node]


@pytest.mark.parametrize("opset", [11, 17])
def test_arithmetic_on_shapes_becomes_constant(opset: int) -> None:
    nodes = [
        make_node("Shape", ["x"], ["shape"]),
        make_node("Gather", ["shape", "last"], ["c"]),
        make_node("Mul", ["c", "three"], ["size"]),
        make_node("Concat", ["one", "size"], ["target"], axis=0),
        make_node("Reshape", ["x", "target"], ["flat"]),
        make_node("ConstantOfShape", ["target"], ["bias"], value=helper.make_tensor("", 1, [1], [2.0])),
        make_node("Add", ["flat", "bias"], ["y"]),
    ]
    alone = [*nodes[:5], make_node("Identity", ["flat"], ["y"])]
    proto = model(alone, last=[2], three=[3], one=[-1], opset=opset)
    assert [name for name in prepared(proto) if name != "Identity"] == ["Reshape"]
    assert prepared(model(nodes, last=[2], three=[3], one=[2], opset=opset)) == ["Reshape", "Add"]


def test_weights_that_are_declared_as_inputs_too_are_constant() -> None:
    nodes = [make_node("Mul", ["size", "two"], ["target"]), make_node("Reshape", ["x", "target"], ["y"])]
    proto = model(nodes, size=[3, 4], two=[2, 1])
    proto.graph.input.extend(value(name, [2], "int64") for name in ("size", "two"))
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
    result = prepared_model(model(nodes, huge=[2**27], one=np.float32([1]), place=[5], **scalars))
    assert [node.op_type for node in result.graph.node] == [node.op_type for node in nodes]
    assert result.ByteSize() < 10_000


def function(name: str, nodes: list[NodeProto], attributes: Sequence[str] = ()) -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["a"], ["out"], nodes, opsets, list(attributes))


def test_functions_of_the_file_are_inlined() -> None:
    leaky = make_node("LeakyRelu", ["a"], ["r"])
    leaky.attribute.add(name="alpha", type=1, ref_attr_name="slope")
    inner = function("Inner", [leaky, make_node("Add", ["r", "a"], ["out"])], attributes=["slope"])
    call = make_node("Inner", ["a"], ["once"], domain="f", slope=0.5)
    outer = function("Outer", [call, make_node("Mul", ["once", "once"], ["out"])])
    proto = model([make_node("Outer", [given], [result], domain="f") for given, result in ("xz", "zy")])
    proto.functions.extend([inner, outer])
    assert prepared(proto) == ["LeakyRelu", "Add", "Mul"] * 2


@pytest.mark.parametrize(
    ("node", "opset", "weights"),
    [
        (make_node("Attention", ["x", "x", "x"], ["y"], q_num_heads=2, kv_num_heads=2), 23, {}),
        (make_node("Swish", ["x"], ["y"], alpha=2.0), 24, {}),
        (make_node("Swish", ["x"], ["y"]), 24, {}),
        (make_node("Celu", ["x"], ["y"], alpha=2.0), 17, {}),
        (make_node("CenterCropPad", ["x", "size"], ["y"], axes=[1, 2]), 18, {"size": [5, 3]}),
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
    node: NodeProto, opset: int, weights: dict[str, Any]
) -> None:
    names = assert_expanded(model([node], opset=opset, **weights), node.op_type, X)
    assert names <= operators() - {node.op_type}


def test_functions_within_functions_are_expanded_in_any_order() -> None:
    nodes = [
        make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["a"]),
        make_node("LogSoftmax", ["x"], ["p"], axis=1),
        make_node("NegativeLogLikelihoodLoss", ["p", "labels"], ["b"]),
        make_node("Add", ["a", "b"], ["y"]),
    ]
    names = prepared(model(nodes, labels=np.ones((2, 4), int)))
    assert {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}.isdisjoint(names)


def test_an_operator_that_leaves_out_inputs_is_expanded() -> None:
    node = make_node("Attention", ["x", "x", "x", "", "", "", "lengths"], ["y"], "attend")
    proto = model([node], opset=24, inputs=[value("x", [2, 1, 4, 4])], lengths=[4, 3])
    data = np.random.default_rng(0).standard_normal((2, 1, 4, 4)).astype(np.float32)
    assert "Attention" not in assert_expanded(proto, "", data)


def assert_expanded(proto: ModelProto, without: str, x: NDArray[Any]) -> set[str]:
    """Asserts by the onnx package, as ONNX Runtime lacks the newest operators; returns which ones there are now."""
    from onnx.reference import ReferenceEvaluator

    expected = ReferenceEvaluator(proto).run(None, {"x": x})[0]
    result = prepared_model(proto, {"x": x}, without)
    np.testing.assert_allclose(ReferenceEvaluator(result).run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)
    return {each.op_type for each in result.graph.node}


def choice(condition: str, then: NodeProto, *other: NodeProto) -> NodeProto:
    """Returns an `If` whose branches return what their last operator does."""
    then_branch, else_branch = (
        helper.make_graph(nodes, "branch", [], [value(nodes[-1].output[0])]) for nodes in ((then,), other)
    )
    return make_node("If", [condition], ["y"], "choose", then_branch=then_branch, else_branch=else_branch)


IS_LARGE = [make_node("ReduceSum", ["x"], ["sum"], keepdims=0), make_node("Greater", ["sum", "zero"], ["is_large"])]


def test_a_branch_that_depends_on_shapes_is_taken() -> None:
    nodes = [
        make_node("Shape", ["x"], ["shape"]),
        make_node("Gather", ["shape", "axis"], ["size"]),
        make_node("Equal", ["size", "axis"], ["is_one"]),
        choice("is_one", make_node("Squeeze", ["x", "axis"], ["a"]), make_node("Neg", ["x"], ["b"])),
    ]
    assert prepared(model(nodes, inputs=[value("x", ["a", "b", "c"])], axis=[1])) == ["Neg"]


@pytest.mark.parametrize("sign", [1, -1])
def test_both_branches_are_computed_if_the_data_choose(sign: int) -> None:
    down = make_node("Neg", ["x"], ["m"]), make_node("Mul", ["m", "x"], ["b"])
    proto = model([*IS_LARGE, choice("is_large", make_node("Exp", ["x"], ["a"]), *down)], zero=np.float32(0))
    assert prepared(proto, {"x": np.abs(X) * np.float32(sign)})[-1] == "Where"


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
        [value("turn", [], "int64"), value("go", [], "bool"), value("state")],
        [value("go_on", [], "bool"), value("more"), value("product")],
    )
    nodes = [make_node("Loop", ["count", "true", "x"], ["last", "all"], "repeat", body=body)]
    return model(nodes, [value("last"), value("all")], opset, **{"true": True, "count": 3, **sizes})


@pytest.mark.parametrize("opset", [11, 17])
def test_a_loop_of_known_length_is_unrolled(opset: int) -> None:
    names = prepared(loop(opset))
    assert "Loop" not in names and names.count("Mul") == 3


def test_a_loop_whose_length_is_a_shape_is_unrolled() -> None:
    proto = loop()
    del proto.graph.initializer[1]
    proto.graph.node.insert(0, make_node("Size", ["x"], ["count"]))
    assert "Loop" not in (names := prepared(proto)) and names.count("Mul") == 24


@pytest.mark.parametrize("backward", [0, 1])
def test_a_scan_is_unrolled(backward: int) -> None:
    body = helper.make_graph(
        [make_node("Add", ["state", "row"], ["sum"]), make_node("Identity", ["sum"], ["seen"])],
        "body",
        [value("state", ["n", 4]), value("row", ["n", 4])],
        [value("sum", ["n", 4]), value("seen", ["n", 4])],
    )
    axes = {"scan_input_axes": [1], "scan_output_axes": [2]}
    directions = {"scan_input_directions": [backward], "scan_output_directions": [1]}
    scan = make_node("Scan", ["start", "x"], ["last", "all"], body=body, num_scan_inputs=1, **axes, **directions)
    proto = model([scan], [value("last"), value("all")], start=np.ones((2, 4), np.float32))
    assert prepared(proto).count("Add") == 3


def test_an_old_version_is_raised() -> None:
    node = make_node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0], mode="nearest")
    proto = model([node], opset=7)
    proto.ir_version = 3
    del proto.opset_import[1]
    assert "Upsample" not in prepared(proto)


REFUSED: list[tuple[ModelProto, Feeds, str, str]] = [
    *(
        (
            loop(count=count),
            {"x": X},
            "Loop 'repeat': its number of turns depends on the data, or is too large: 4096 operators",
            "",
        )
        for count in (10**6, 2**62)
    ),
    (
        model(
            [*IS_LARGE, choice("is_large", make_node("ReduceSum", ["x"], ["a"]), make_node("Exp", ["x"], ["b"]))],
            zero=np.float32(0),
        ),
        {"x": X},
        "If 'choose': its condition depends on the data, and its branches have values of different shapes",
        "`outputs: [is_large]`",
    ),
    (
        model(
            [
                make_node("Relu", ["x"], ["r"]),
                make_node("Exp", ["r"], ["side"]),
                make_node("NonZero", ["r"], ["where"], "find"),
                make_node("Transpose", ["where"], ["indices"]),
                make_node("GatherND", ["side", "indices"], ["y"]),
            ],
            [value("y"), value("side")],
        ),
        {"x": X},
        "NonZero 'find': the shape of its output depends on the data",
        "To build what is before, give the model `outputs: [r, side]`",
    ),
    (
        model(
            [make_node("Cast", ["x"], ["whole"], to=7), make_node("Reshape", ["x", "whole"], ["y"])],
            inputs=[value("x", ["n"])],
        ),
        {"x": np.ones(1, np.float32)},
        "Reshape 'y': the shape of its output depends on the data",
        "`outputs: [whole]`",
    ),
    (
        model(
            [
                make_node("Relu", ["x"], ["r"]),
                make_node("RandomNormalLike", ["r"], ["d"], "noise"),
                make_node("Bernoulli", ["r"], ["b"], "coin"),
                make_node("Add", ["d", "b"], ["y"]),
            ]
        ),
        {"x": np.ones((1, 3, 3), np.float32)},
        "RandomNormalLike 'noise': there is no converter for this operator",
        "`outputs: [r]`",
    ),
]


@pytest.mark.parametrize(("proto", "feeds", "problem", "end"), REFUSED)
def test_what_cannot_be_imported_is_told_with_what_is_before(
    proto: ModelProto, feeds: Feeds, problem: str, end: str
) -> None:
    with pytest.raises(ExtractError) as caught:
        prepared_model(proto, feeds)
    message = str(caught.value)
    assert message.startswith("model net: net.onnx: ") and "\n" not in message
    assert problem in message and message.endswith(end)


def test_what_was_changed_is_told() -> None:
    proto = loop()
    before = count_operators(proto)
    after = count_operators(prepared_model(proto))
    assert differences(before, before) == ()
    changes = ("Add: 0 before, 3 after", "Concat: 0 before, 1 after", "Loop: 1 before, 0 after")
    assert differences(before, after)[:3] == changes
