"""Sums and products of values are of 8 bits only where that is harmless and something reads the bytes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from anole.quantize.operators import float_sums


def file_of(*nodes: tuple[str, list[str], str]) -> onnx.ModelProto:
    """Return a file whose operators have the names of their results; what begins with w is a weight."""
    weights = {name for _, inputs, _ in nodes for name in inputs if name.startswith("w")}
    made = [helper.make_node(operator, inputs, [output], output) for operator, inputs, output in nodes]
    held = [numpy_helper.from_array(np.zeros(1, np.float32), name) for name in weights]
    return helper.make_model(helper.make_graph(made, "net", [], [], held))


def test_sums_between_convolutions_are_of_bytes() -> None:
    file = file_of(
        ("Conv", ["x", "w1"], "one"),
        ("Add", ["one", "x"], "sum"),
        ("Relu", ["sum"], "positive"),
        ("Sigmoid", ["positive"], "gate"),
        ("Mul", ["positive", "gate"], "gated"),
        ("MaxPool", ["gated"], "pooled"),
        ("Conv", ["pooled", "w2"], "y"),
    )
    assert float_sums(file) == []


def test_scores_their_mask_and_what_a_norm_reads_stay_in_float32() -> None:
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
    assert float_sums(file) == ["masked", "sum"]


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
    assert float_sums(file) == ["scaled", "normal"]
