"""Random graphs are valid and reproducible, and the comparison distinguishes errors from rounding."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from .graph_generator import MAX_NODES, RandomGraph, declare, model_of, random_graph, run
from .graph_judge import judge
from .graph_parts import smallest_part
from .graphs import summary

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_graphs_are_reproducible_and_valid(seed: int) -> None:
    graph, again = random_graph(seed), random_graph(seed)
    assert graph.model == again.model and 0 < len(graph.model.graph.node) <= MAX_NODES
    onnx.checker.check_model(graph.model)
    assert all(np.array_equal(graph.inputs[name], again.inputs[name]) for name in graph.inputs)
    assert judge(graph, run(graph.model, graph.inputs))[0].endswith("right")


def test_graphs_have_several_inputs_outputs_and_types() -> None:
    graphs = [random_graph(seed).model.graph for seed in SEEDS]
    assert max(len(graph.input) for graph in graphs) > 2 and max(len(graph.output) for graph in graphs) > 2
    assert len({node.op_type for graph in graphs for node in graph.node}) > 50
    types = {value.type.tensor_type.elem_type for graph in graphs for value in graph.output}
    assert types == {onnx.TensorProto.FLOAT, onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.BOOL}


def floor_of_product(values: list[float]) -> RandomGraph:
    """Return a graph with a rounding operator followed by Floor."""
    x = np.array(values, np.float32)
    nodes = [helper.make_node("Mul", ["x", "k"], ["p"]), helper.make_node("Floor", ["p"], ["y"])]
    model = model_of(nodes, {"x": x}, {"k": np.float32([3.0])}, ["y"], 18)
    del model.graph.output[:]
    model.graph.output.extend(declare({"y": x}))
    return RandomGraph(model, {"x": x}, ("p", "y"))


@pytest.mark.parametrize(
    ("values", "change", "outcome"),
    [
        ([0.5, 1.1], 0.0, "right"),
        ([0.5, 1.0], [0.0, -1.0], "rounding"),
        ([0.5, 1.0], [-1.0, 0.0], "wrong"),
        ([0.5, np.inf], 0.0, "non-finite right"),
        ([0.5, np.inf], [1.0, 0.0], "non-finite differs"),
    ],
)
def test_only_ulp_differences_count_as_rounding(values: list[float], change: list[float], outcome: str) -> None:
    graph = floor_of_product(values)
    (expected,) = run(graph.model, graph.inputs)
    assert judge(graph, [(expected + np.float32(change)).astype(np.float32)])[0] == outcome


def test_results_of_onnx_reference_are_no_error() -> None:
    """ONNX Runtime subtracts the mean as the last step, which cancels."""
    nodes = [helper.make_node("InstanceNormalization", ["x", "scale", "bias"], ["y"])]
    x, bias = np.full((1, 1, 1), 99.9, np.float32), np.float32([0.507])
    model = model_of(nodes, {"x": x}, {"scale": np.float32([1.04]), "bias": bias}, ["y"], 18)
    del model.graph.output[:]
    model.graph.output.extend(declare({"y": x}))
    graph = RandomGraph(model, {"x": x}, ("y",))
    assert judge(graph, [bias.reshape(1, 1, 1)])[0] == "onnxruntime differs"
    assert judge(graph, [bias.reshape(1, 1, 1) + 1])[0] == "wrong"


def test_graphs_are_reduced_to_the_failing_operator() -> None:
    graph = next(
        each for each in map(random_graph, range(99)) if any(n.op_type == "Conv" for n in each.model.graph.node)
    )
    part = smallest_part(graph, lambda part: any(node.op_type == "Conv" for node in part.model.graph.node))
    assert [node.op_type for node in part.model.graph.node] == ["Conv"] and run(part.model, part.inputs)


def test_the_summary_counts_outcomes_and_names_failures() -> None:
    plain = {"through": "compile", "reason": ""}
    rows = summary({"0": {**plain, "outcome": "right"}, "1": {**plain, "outcome": "wrong", "reason": "y"}}, "0 to 1")
    assert [(row["seeds"], row["outcome"], row["graphs"]) for row in rows] == [
        ("0 to 1", "right", "1"),
        ("0 to 1", "wrong", "1"),
        ("1", "wrong", "1"),
    ]
