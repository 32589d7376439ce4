"""Preparation of ONNX models: prepared models are equivalent, and contain only operators that can be imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

from anole.documents.build import TensorInfo
from anole.errors import ExtractError
from anole.extract.onnx.frontend import operators
from anole.extract.onnx.prepare import count_operators, differences, prepare

from .models import model_of, reference, value

Feeds = Mapping[str, NDArray[Any]]

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


def model(
    nodes: str, outputs: str = "float[] y", opset: int = 17, inputs: str = "float[n,3,c] x", **weights: Any
) -> ModelProto:
    return model_of(f"({inputs}) => ({outputs}) {{{nodes}}}", opset=opset, domains=["f"], **weights)


def prepare_model(proto: ModelProto, feeds: Feeds | None = None, without: str = "") -> ModelProto:
    infos = [TensorInfo(name, array.shape, str(array.dtype)) for name, array in (feeds or {"x": X}).items()]
    return prepare(proto, tuple(infos), operators() - {without}, "model net: net.onnx")


def prepare_and_check(proto: ModelProto, feeds: Feeds | None = None) -> list[str]:
    """Prepare a model, compare its outputs with the original's, and return its operators."""
    feeds = feeds or {"x": X}
    expected = reference(proto, feeds)
    outputs = [each.name for each in proto.graph.output]
    result = prepare_model(proto, feeds)
    for found, wanted in zip(reference(result, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert [each.name for each in result.graph.output] == outputs
    return [node.op_type for node in result.graph.node]


SHAPES = """
    shape = Shape (x)
    c = Gather (shape, last)
    size = Mul (c, three)
    target = Concat <axis = 0> (one, size)
    flat = Reshape (x, target)
"""


@pytest.mark.parametrize("opset", [11, 17])
def test_shape_arithmetic_is_folded(opset: int) -> None:
    proto = model(SHAPES + "y = Identity (flat)", last=[2], three=[3], one=[-1], opset=opset)
    assert [name for name in prepare_and_check(proto) if name != "Identity"] == ["Reshape"]
    more = "bias = ConstantOfShape <value = float[1] {2}> (target) y = Add (flat, bias)"
    assert prepare_and_check(model(SHAPES + more, last=[2], three=[3], one=[2], opset=opset)) == ["Reshape", "Add"]


def test_weights_also_declared_as_inputs_are_constant() -> None:
    proto = model("target = Mul (size, two) y = Reshape (x, target)", size=[3, 4], two=[2, 1])
    proto.graph.input.extend(value(name, [2], "int64") for name in ("size", "two"))
    assert prepare_and_check(proto) == ["Reshape"]


def test_large_constants_are_not_folded() -> None:
    nodes = """
        zeros = ConstantOfShape (huge)
        ones = Expand (one, huge)
        numbers = Range (start, limit, step)
        a = Gather (zeros, index)
        b = Gather (ones, index)
        c = Gather (numbers, index)
        y = Sum (x, a, b, c)
    """
    scalars = {"start": np.float32(0), "limit": np.float32(2**27), "step": np.float32(1)}
    proto = model(nodes, huge=[2**27], one=np.float32([1]), index=[5], **scalars)
    before = [node.op_type for node in proto.graph.node]
    result = prepare_model(proto)
    assert [node.op_type for node in result.graph.node] == before
    assert result.ByteSize() < 10_000


FUNCTIONS = [
    "Inner <slope> (a) => (out) {r = LeakyRelu <alpha: float = @slope> (a) out = Add (r, a)}",
    "Outer (b) => (out) {once = f.Inner <slope = 0.5> (b) out = Mul (once, once)}",
]


def test_model_local_functions_are_inlined() -> None:
    proto = model("z = f.Outer (x) y = f.Outer (z)")
    header = '<domain: "f", opset_import: ["" : 17, "f" : 1]> '
    proto.functions.extend(onnx.parser.parse_function(header + each) for each in FUNCTIONS)
    assert prepare_and_check(proto) == ["LeakyRelu", "Add", "Mul"] * 2


def assert_expanded(proto: ModelProto, without: str, x: NDArray[Any]) -> set[str]:
    """Compare with onnx's evaluator, since ONNX Runtime does not support the newest operators; return the operators."""
    expected = ReferenceEvaluator(proto).run(None, {"x": x})[0]
    result = prepare_model(proto, {"x": x}, without)
    np.testing.assert_allclose(ReferenceEvaluator(result).run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)
    return {each.op_type for each in result.graph.node}


@pytest.mark.parametrize(
    ("node", "opset", "weights"),
    [
        ("Attention <q_num_heads = 2, kv_num_heads = 2> (x, x, x)", 23, {}),
        ("Swish <alpha = 2.0> (x)", 24, {}),
        ("Swish (x)", 24, {}),
        ("Celu <alpha = 2.0> (x)", 17, {}),
        ("CenterCropPad <axes = [1, 2]> (x, size)", 18, {"size": [5, 3]}),
        ("MeanVarianceNormalization <axes = [0, 2]> (x)", 17, {}),
        ('SoftmaxCrossEntropyLoss <reduction = "sum"> (x, labels)', 17, {"labels": np.ones((2, 4), int)}),
    ],
)
def test_operators_defined_as_functions_are_expanded(node: str, opset: int, weights: dict[str, Any]) -> None:
    without = node.split()[0]
    assert assert_expanded(model(f"y = {node}", opset=opset, **weights), without, X) <= operators() - {without}


def test_nested_functions_are_expanded_in_any_order() -> None:
    nodes = """
        a = SoftmaxCrossEntropyLoss (x, labels)
        p = LogSoftmax <axis = 1> (x)
        b = NegativeLogLikelihoodLoss (p, labels)
        y = Add (a, b)
    """
    names = prepare_and_check(model(nodes, labels=np.ones((2, 4), int)))
    assert {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}.isdisjoint(names)


def test_an_operator_with_omitted_inputs_is_expanded() -> None:
    node = 'y = Attention (x, x, x, "", "", "", lengths)'
    data = np.random.default_rng(0).standard_normal((2, 1, 4, 4)).astype(np.float32)
    proto = model(node, opset=24, inputs="float[2,1,4,4] x", lengths=[4, 3])
    assert "Attention" not in assert_expanded(proto, "", data)


def choice(condition: str, then: str, other: str) -> str:
    """Return an `If` whose branches compute a and b."""
    branches = f"then_branch = then () => (float[] a) {{{then}}}, else_branch = other () => (float[] b) {{{other}}}"
    return f"[choose] y = If <{branches}> ({condition})"


IS_LARGE = "sum = ReduceSum <keepdims = 0> (x) is_large = Greater (sum, zero)"


def test_a_branch_that_depends_only_on_shapes_is_resolved() -> None:
    nodes = "shape = Shape (x) size = Gather (shape, axis) is_one = Equal (size, axis)"
    nodes += choice("is_one", "a = Squeeze (x, axis)", "b = Neg (x)")
    assert prepare_and_check(model(nodes, inputs="float[a,b,c] x", axis=[1])) == ["Neg"]


@pytest.mark.parametrize("sign", [1, -1])
def test_both_branches_are_computed_if_the_condition_depends_on_data(sign: int) -> None:
    proto = model(IS_LARGE + choice("is_large", "a = Exp (x)", "m = Neg (x) b = Mul (m, x)"), zero=np.float32(0))
    assert prepare_and_check(proto, {"x": np.abs(X) * np.float32(sign)})[-1] == "Where"


LOOP = """
    [repeat] last, all = Loop <body = body (int64 turn, bool go, float[] state) => (
        bool go_on, float[] more, float[] product
    ) {
        number = Cast <to = 1> (turn)
        more = Add (state, number)
        product = Mul (more, x)
        go_on = Identity (go)
    }> (count, true, x)
"""


def loop(nodes: str = LOOP, opset: int = 17, **sizes: Any) -> ModelProto:
    """Return a loop with a state, a captured value and a scan output."""
    return model(nodes, "float[] last, float[] all", opset, **{"true": True, **sizes})


@pytest.mark.parametrize("opset", [11, 17])
def test_a_loop_with_a_constant_trip_count_is_unrolled(opset: int) -> None:
    names = prepare_and_check(loop(opset=opset, count=3))
    assert "Loop" not in names and names.count("Mul") == 3


def test_a_loop_with_a_trip_count_from_a_shape_is_unrolled() -> None:
    assert "Loop" not in (names := prepare_and_check(loop("count = Size (x)" + LOOP))) and names.count("Mul") == 24


SCAN = """
    last, all = Scan <
        body = body (float[n,4] state, float[n,4] row) => (float[n,4] sum, float[n,4] seen) {
            sum = Add (state, row)
            seen = Identity (sum)
        },
        num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [2],
        scan_input_directions = [BACKWARD], scan_output_directions = [1]
    > (start, x)
"""


@pytest.mark.parametrize("backward", [0, 1])
def test_a_scan_is_unrolled(backward: int) -> None:
    nodes = SCAN.replace("BACKWARD", str(backward))
    proto = model(nodes, "float[] last, float[] all", start=np.ones((2, 4), np.float32))
    assert prepare_and_check(proto).count("Add") == 3


def test_an_old_opset_is_converted() -> None:
    proto = model('y = Upsample <scales = [1.0, 1.0, 2.0], mode = "nearest"> (x)', opset=7)
    proto.ir_version = 3
    del proto.opset_import[1]
    assert "Upsample" not in prepare_and_check(proto)


TOO_LONG = "Loop 'repeat': its trip count depends on the data, or it unrolls to more than 4096 operators"


@pytest.mark.parametrize(
    ("proto", "x", "problem", "end"),
    [
        (loop(count=10**6), X, TOO_LONG, ""),
        (loop(count=2**62), X, TOO_LONG, ""),
        (
            model(IS_LARGE + choice("is_large", "a = ReduceSum (x)", "b = Exp (x)"), zero=np.float32(0)),
            X,
            "If 'choose': its condition depends on the data, and its branches have values of different shapes",
            "`outputs: [is_large]`",
        ),
        (
            model(
                "r = Relu (x) side = Exp (r) [find] where = NonZero (r) indices = Transpose (where)"
                "y = GatherND (side, indices)",
                "float[] y, float[] side",
            ),
            X,
            "NonZero 'find': the shape of its output depends on the data",
            "To build the part before them, set the model's `outputs: [r, side]`",
        ),
        (
            model("whole = Cast <to = 7> (x) y = Reshape (x, whole)", inputs="float[n] x"),
            np.ones(1, np.float32),
            "Reshape 'y': the shape of its output depends on the data",
            "`outputs: [whole]`",
        ),
        (
            model("r = Relu (x) [noise] d = RandomNormalLike (r) [coin] b = Bernoulli (r) y = Add (d, b)"),
            np.ones((1, 3, 3), np.float32),
            "RandomNormalLike 'noise': there is no converter for this operator",
            "`outputs: [r]`",
        ),
    ],
)
def test_unsupported_operators_are_reported_with_possible_outputs(
    proto: ModelProto, x: NDArray[Any], problem: str, end: str
) -> None:
    with pytest.raises(ExtractError) as caught:
        prepare_model(proto, {"x": x})
    message = str(caught.value)
    assert message.startswith("model net: net.onnx: ") and "\n" not in message
    assert problem in message and message.endswith(end)


def test_differences_list_changed_operator_counts() -> None:
    proto = loop(count=3)
    before = count_operators(proto)
    after = count_operators(prepare_model(proto))
    assert differences(before, before) == ()
    changes = ("Add: 0 before, 3 after", "Concat: 0 before, 1 after", "Loop: 1 before, 0 after")
    assert differences(before, after)[:3] == changes
