"""Helpers for ONNX protobufs: opsets, subgraph traversal, and running onnx's passes without weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx
import onnx.version_converter

ONNX_DOMAINS = ("", "ai.onnx")
"""The domains of ONNX's own operators."""

_MAX_CONSTANT_BYTES = 1024


def opset_of(proto: onnx.ModelProto) -> int:
    """Return the version of ONNX's operators that a checked model imports."""
    return int(next(opset.version for opset in proto.opset_import if opset.domain in ONNX_DOMAINS))


def upgrade_opset(proto: onnx.ModelProto, minimum: int) -> onnx.ModelProto:
    """Convert a checked model to an opset, unless its own is at least that version."""
    return proto if opset_of(proto) >= minimum else onnx.version_converter.convert_version(proto, minimum)


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """Yield the attribute name and graph of each subgraph, such as a branch."""
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            yield attribute.name, graph


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the operators of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for _, subgraph in subgraphs(node):
            yield from all_nodes(subgraph)


def without_weights(proto: onnx.ModelProto, change: Callable[[onnx.ModelProto], onnx.ModelProto]) -> onnx.ModelProto:
    """Apply a function to a model without its large weights, and put the weights back.

    The onnx package serializes its argument, which protobuf limits to 2 GB. During the call, all weights are declared
    as inputs, from which the onnx package takes their types; small weights also stay constants.
    """
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    input_names = {value.name for value in proto.graph.input}
    bare = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, functions=proto.functions)
    graph = proto.graph
    bare.graph.name = graph.name
    bare.graph.node.extend(graph.node)
    bare.graph.input.extend(graph.input)
    bare.graph.output.extend(graph.output)
    bare.graph.value_info.extend(graph.value_info)
    for name, tensor in weights.items():
        bare.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
        if tensor.ByteSize() <= _MAX_CONSTANT_BYTES:
            bare.graph.initializer.append(tensor)
    changed = change(bare)
    inputs = [value for value in changed.graph.input if value.name in input_names]
    del changed.graph.input[:]
    changed.graph.input.extend(inputs)
    present = {tensor.name for tensor in changed.graph.initializer}
    changed.graph.initializer.extend(tensor for name, tensor in weights.items() if name not in present)
    return changed
