"""Sums and products of activations are quantized only where that is harmless and a product reads 8 bits."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from anole.quantize.operators import find_float_sums


def file_of(*nodes: tuple[str, list[str], str]) -> onnx.ModelProto:
    """Return a file whose operators are named after their results; names of weights begin with w."""
    weights = {name for _, inputs, _ in nodes for name in inputs if name.startswith("w")}
    operators = [helper.make_node(operator, inputs, [output], output) for operator, inputs, output in nodes]
    initializers = [numpy_helper.from_array(np.zeros(1, np.float32), name) for name in weights]
    return helper.make_model(helper.make_graph(operators, "net", [], [], initializers))


def test_sums_between_convolutions_are_quantized() -> None:
    file = file_of(
        ("Conv", ["x", "w1"], "one"),
        ("Add", ["one", "x"], "sum"),
        ("Relu", ["sum"], "positive"),
        ("Sigmoid", ["positive"], "gate"),
        ("Mul", ["positive", "gate"], "gated"),
        ("MaxPool", ["gated"], "pooled"),
        ("Conv", ["pooled", "w2"], "y"),
    )
    assert find_float_sums(file) == []


def test_masked_scores_and_inputs_of_norms_stay_in_float32() -> None:
    file = file_of(
        ("MatMul", ["query", "key"], "scores"),
        ("Add", ["scores", "mask"], "masked"),
        ("Softmax", ["masked"], "share"),
        ("MatMul", ["share", "value"], "mixed"),
        ("MatMul", ["mixed", "w1"], "projected"),
        ("Add", ["projected", "x"], "sum"),
        ("LayerNormalization", ["sum", "w2"], "normal"),
        ("MatMul", ["normal", "w3"], "y"),
    )
    assert find_float_sums(file) == ["masked", "sum"]


def test_parts_of_norms_and_activations_stay_in_float32_up_to_the_next_product() -> None:
    file = file_of(
        ("ReduceMean", ["x"], "mean"),
        ("Sub", ["x", "mean"], "centered"),
        ("Mul", ["centered", "w1"], "scaled"),
        ("Reshape", ["scaled", "w2"], "wide"),
        ("Add", ["wide", "w3"], "normal"),
        ("MatMul", ["normal", "w4"], "product"),
        ("Add", ["product", "w5"], "biased"),
        ("MatMul", ["biased", "w6"], "y"),
    )
    assert find_float_sums(file) == ["scaled", "normal"]
