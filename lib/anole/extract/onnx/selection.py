"""Selection of a part of an ONNX model: up to the entry's `outputs`, with inputs fixed to its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from anole.errors import ExtractError, shown, suggestion
from anole.extract.onnx.protos import subgraphs, without_weights

if TYPE_CHECKING:
    from anole.config.entries import ModelSpec


def select_part(model: ModelSpec, proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the part of a model that its entry selects, or the entire model if the entry selects no part.

    Weights need not be loaded.

    Raises:
        ExtractError: the file has no such input or value, or an input's value does not fit its type.
    """
    if not model.outputs and not model.values:
        return proto
    part = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import, functions=proto.functions)
    part.graph.name = proto.graph.name
    _add_dependencies(part.graph, proto, model)
    fixed = [_constant(model, value) for value in part.graph.input if value.name in model.values]
    part.graph.initializer.extend(fixed)
    free_inputs = [value for value in part.graph.input if value.name not in model.values]
    del part.graph.input[:]
    part.graph.input.extend(free_inputs)
    return part


def serialize_part(model: ModelSpec) -> bytes | None:
    """Return the serialized part of the file that a model's entry selects, or None if the entry selects no part.

    Weights in external files stay there.

    Raises:
        ExtractError: the file has no such input or value, or an input's value does not fit its type.
    """
    if not model.outputs and not model.values:
        return None
    proto = onnx.load(Path(model.location), format="protobuf", load_external_data=False)
    return bytes(select_part(model, proto).SerializeToString())


def _add_dependencies(part: onnx.GraphProto, proto: onnx.ModelProto, model: ModelSpec) -> None:
    """Add the operators, inputs and weights that the outputs depend on."""
    graph = proto.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in weights]
    for name in model.values:
        if name not in inputs:
            problem = f"found {name!r}, which is not an input of {model.location}; {suggestion(name, inputs)}"
            raise ExtractError(f"model {model.name}: inputs: {problem}")
    computed = dict.fromkeys(name for node in graph.node for name in node.output if name)
    for name in model.outputs:
        if name not in computed:
            problem = f"found {name!r}, which no operator of {model.location} computes"
            raise ExtractError(f"model {model.name}: outputs: {problem}; {suggestion(name, list(computed))}")
    outputs = model.outputs or tuple(value.name for value in graph.output)
    nodes = _required_nodes(graph, outputs)
    names = {name for node in nodes for name in (*node.input, *_captured_names(node))} | set(outputs)
    internal = {name for node in nodes for name in node.output} - set(outputs)
    part.node.extend(nodes)
    part.input.extend(value for value in graph.input if value.name in names or not model.outputs)
    part.initializer.extend(tensor for tensor in graph.initializer if tensor.name in names)
    part.value_info.extend(value for value in graph.value_info if value.name in internal)
    part.output.extend(_output_types(proto, model) if model.outputs else graph.output)


def _constant(model: ModelSpec, value: onnx.ValueInfoProto) -> onnx.TensorProto:
    """Return the entry's value of an input as a tensor."""
    entry_value, tensor = model.values[value.name], value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    dims = [dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim]
    array: Any = np.array(entry_value)
    cast = array.astype(dtype)
    where = f"model {model.name}: input {value.name}: found value {shown(entry_value)}"
    if np.dtype(dtype).kind in "biu" and not (cast == array).all():
        raise ExtractError(f"{where}; the file declares {np.dtype(dtype).name}")
    if array.ndim == 0 and None not in dims:
        cast = np.full(dims, cast)
    elif array.ndim != len(dims) or any(size not in (None, n) for size, n in zip(dims, array.shape, strict=True)):
        allowed = f"[{', '.join('any' if size is None else str(size) for size in dims)}]"
        raise ExtractError(f"{where} of shape {list(array.shape)}; the file has {allowed}")
    return onnx.numpy_helper.from_array(cast, value.name)


def _required_nodes(graph: onnx.GraphProto, outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Return the operators that the outputs depend on, in graph order."""
    sources = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    indices: set[int] = set()
    names = list(outputs)
    while names:
        index = sources.get(names.pop())
        if index is not None and index not in indices:
            indices.add(index)
            names += [*graph.node[index].input, *_captured_names(graph.node[index])]
    return [graph.node[index] for index in sorted(indices)]


def _captured_names(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that an operator's subgraphs read, including their own values."""
    for _, graph in subgraphs(node):
        yield from (output.name for output in graph.output)
        for inner_node in graph.node:
            yield from inner_node.input
            yield from _captured_names(inner_node)


def _output_types(proto: onnx.ModelProto, model: ModelSpec) -> list[onnx.ValueInfoProto]:
    """Return the declared or inferred type of each output."""
    types = {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}
    if not all(name in types and types[name].type.tensor_type.elem_type for name in model.outputs):
        bare = without_weights(proto, lambda bare: onnx.shape_inference.infer_shapes(bare))
        types = {value.name: value for value in (*bare.graph.value_info, *bare.graph.output)}
    for name in model.outputs:
        if name not in types or not types[name].type.tensor_type.elem_type:
            raise ExtractError(f"model {model.name}: outputs: the type of {name!r} in {model.location} is unknown")
    return [types[name] for name in model.outputs]
