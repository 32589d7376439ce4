"""Conversion of float16 models to float32, the dtype of the kernels; inputs and outputs stay float16."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from anole.extract.onnx.protos import subgraphs

_WIDE = "__float32"
TYPE_ATTRIBUTES = ("dtype", "output_datatype", "output_dtype", "softmax_precision", "to")
"""The attributes that hold a dtype."""


def compute_in_float32(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Convert a model without branches so its internal float16 values are float32, in place.

    A model with bit casts or remaining branches is returned unchanged.
    """
    graph = proto.graph
    halves = [value.name for value in graph.input if _is_half(value)]
    results = [value.name for value in graph.output if _is_half(value)]
    if not _has_halves(graph) or any(_keeps_bits(node) for node in graph.node):
        return proto
    for tensor in graph.initializer:
        _widen(tensor)
        if tensor.name in results:
            tensor.name += _WIDE
    for node in graph.node:
        _widen_attributes(node)
        _rename(node, {*halves, *results})
    for value in graph.value_info:
        if _is_half(value):
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    input_casts = [onnx.helper.make_node("Cast", [name], [name + _WIDE], to=TensorProto.FLOAT) for name in halves]
    output_casts = [onnx.helper.make_node("Cast", [name + _WIDE], [name], to=TensorProto.FLOAT16) for name in results]
    nodes = [*input_casts, *graph.node, *output_casts]
    del graph.node[:]
    graph.node.extend(nodes)
    return proto


def _has_halves(graph: onnx.GraphProto) -> bool:
    tensors = [*graph.initializer, *(each.t for node in graph.node for each in node.attribute if each.HasField("t"))]
    values = [*graph.input, *graph.output, *graph.value_info]
    return any(tensor.data_type == TensorProto.FLOAT16 for tensor in tensors) or any(map(_is_half, values))


def _keeps_bits(node: onnx.NodeProto) -> bool:
    return node.op_type == "BitCast" or any(subgraphs(node))


def _is_half(value: onnx.ValueInfoProto) -> bool:
    return bool(value.type.tensor_type.elem_type == TensorProto.FLOAT16)


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT16:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))


def _widen_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _widen(attribute.t)
        if attribute.name in TYPE_ATTRIBUTES and attribute.i == TensorProto.FLOAT16:
            attribute.i = TensorProto.FLOAT


def _rename(node: onnx.NodeProto, names: Iterable[str]) -> None:
    """Make an operator read and write the float32 versions of inputs and outputs."""
    for values in (node.input, node.output):
        for index, name in enumerate(values):
            if name in names:
                values[index] = name + _WIDE
