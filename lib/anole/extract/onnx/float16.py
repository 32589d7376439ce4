"""Conversion of float16 models to float32, the dtype of the kernels; inputs and outputs stay float16."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from anole.extract.onnx.protos import subgraphs

_SUFFIX = "__float32"
TYPE_ATTRIBUTES = ("dtype", "output_datatype", "output_dtype", "softmax_precision", "to")
"""The attributes that hold a dtype."""


def compute_in_float32(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Convert the internal float16 values of a model without branches to float32, in place.

    A model with bit casts or remaining branches is returned unchanged.
    """
    graph = proto.graph
    inputs = [value.name for value in graph.input if _is_float16(value)]
    outputs = [value.name for value in graph.output if _is_float16(value)]
    if not _has_float16(graph) or any(node.op_type == "BitCast" or any(subgraphs(node)) for node in graph.node):
        return proto
    for tensor in graph.initializer:
        _to_float32(tensor)
        if tensor.name in outputs:
            tensor.name += _SUFFIX
    for node in graph.node:
        _attributes_to_float32(node)
        _rename(node, {*inputs, *outputs})
    for value in graph.value_info:
        if _is_float16(value):
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    input_casts = [onnx.helper.make_node("Cast", [name], [name + _SUFFIX], to=TensorProto.FLOAT) for name in inputs]
    output_casts = [onnx.helper.make_node("Cast", [name + _SUFFIX], [name], to=TensorProto.FLOAT16) for name in outputs]
    nodes = [*input_casts, *graph.node, *output_casts]
    del graph.node[:]
    graph.node.extend(nodes)
    return proto


def _has_float16(graph: onnx.GraphProto) -> bool:
    tensors = [*graph.initializer, *(attr.t for node in graph.node for attr in node.attribute if attr.HasField("t"))]
    values = [*graph.input, *graph.output, *graph.value_info]
    return any(tensor.data_type == TensorProto.FLOAT16 for tensor in tensors) or any(map(_is_float16, values))


def _is_float16(value: onnx.ValueInfoProto) -> bool:
    return bool(value.type.tensor_type.elem_type == TensorProto.FLOAT16)


def _to_float32(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT16:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))


def _attributes_to_float32(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            _to_float32(attribute.t)
        if attribute.name in TYPE_ATTRIBUTES and attribute.i == TensorProto.FLOAT16:
            attribute.i = TensorProto.FLOAT


def _rename(node: onnx.NodeProto, names: Iterable[str]) -> None:
    """Make an operator read and write the float32 versions of inputs and outputs."""
    for values in (node.input, node.output):
        for index, name in enumerate(values):
            if name in names:
                values[index] = name + _SUFFIX
