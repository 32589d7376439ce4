"""Runs functions of the onnx package on a model without its weights, which they would serialise: 2 GB is the most."""

from __future__ import annotations

from collections.abc import Callable

import onnx

_LARGE_BYTES = 1024


def without_weights(proto: onnx.ModelProto, change: Callable[[onnx.ModelProto], onnx.ModelProto]) -> onnx.ModelProto:
    """Returns what a function makes of a model, with the model's weights.

    All weights are inputs meanwhile, since the functions take types from there, and small ones are constants too.

    Args:
        proto: the model; its weights move to the result.
        change: maps the model without large weights to another one with the same inputs.
    """
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    given = {value.name for value in proto.graph.input}
    bare = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, functions=proto.functions)
    graph = proto.graph
    bare.graph.name = graph.name
    bare.graph.node.extend(graph.node)
    bare.graph.input.extend(graph.input)
    bare.graph.output.extend(graph.output)
    bare.graph.value_info.extend(graph.value_info)
    for name, tensor in weights.items():
        bare.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
        if tensor.ByteSize() <= _LARGE_BYTES:
            bare.graph.initializer.append(tensor)
    changed = change(bare)
    inputs = [value for value in changed.graph.input if value.name in given]
    del changed.graph.input[:]
    changed.graph.input.extend(inputs)
    kept = {tensor.name for tensor in changed.graph.initializer}
    changed.graph.initializer.extend(tensor for name, tensor in weights.items() if name not in kept)
    return changed
