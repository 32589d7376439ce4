"""Cuts a model off behind the values that its entry names as outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from anole.errors import ExtractError, suggestion
from anole.extract.onnx.bare import without_weights

if TYPE_CHECKING:
    from anole.spec.entries import ModelSpec


def cut(model: ModelSpec, proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns what the outputs need that the model's entry names, or the model itself if it names none.

    Args:
        model: the model's entry.
        proto: the model; its weights need not be loaded.

    Raises:
        ExtractError: the file has no value of such a name.
    """
    if not model.outputs:
        return proto
    graph = proto.graph
    computed = [name for node in graph.node for name in node.output if name]
    for name in model.outputs:
        if name not in set(computed):
            problem = f"found {name!r}, which no operator of {model.location} computes"
            raise ExtractError(f"model {model.name}: outputs: {problem}; {suggestion(name, computed)}")
    nodes = _needed(graph, model.outputs)
    names = {name for node in nodes for name in (*node.input, *_captured(node))} | set(model.outputs)
    part = onnx.ModelProto()
    part.CopyFrom(onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import))
    part.functions.extend(proto.functions)
    part.graph.name = graph.name
    part.graph.node.extend(nodes)
    part.graph.input.extend(value for value in graph.input if value.name in names)
    part.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in names)
    inner = {name for node in nodes for name in node.output} - set(model.outputs)
    part.graph.value_info.extend(value for value in graph.value_info if value.name in inner)
    part.graph.output.extend(_declared(proto, model))
    return part


def cut_file(model: ModelSpec) -> bytes:
    """Returns the model of a file, without weights that lie in other files, cut as `cut` does.

    Raises:
        ExtractError: the file has no value of such a name.
    """
    proto = onnx.load(Path(model.location), format="protobuf", load_external_data=False)
    return bytes(cut(model, proto).SerializeToString())


def _needed(graph: onnx.GraphProto, outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Returns the operators that compute values and everything before them, in their order."""
    sources = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needed: set[int] = set()
    names = list(outputs)
    while names:
        index = sources.get(names.pop())
        if index is not None and index not in needed:
            needed.add(index)
            names += [*graph.node[index].input, *_captured(graph.node[index])]
    return [graph.node[index] for index in sorted(needed)]


def _captured(node: onnx.NodeProto) -> Iterator[str]:
    """Yields the names that an operator's subgraphs read, also those of values of their own."""
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            yield from (output.name for output in graph.output)
            for each in graph.node:
                yield from each.input
                yield from _captured(each)


def _declared(proto: onnx.ModelProto, model: ModelSpec) -> list[onnx.ValueInfoProto]:
    """Returns the type of each output."""
    known = {value.name: value for value in (*proto.graph.value_info, *proto.graph.output)}
    if not all(name in known and known[name].type.tensor_type.elem_type for name in model.outputs):
        bare = without_weights(proto, lambda bare: onnx.shape_inference.infer_shapes(bare))
        known = {value.name: value for value in (*bare.graph.value_info, *bare.graph.output)}
    for name in model.outputs:
        if name not in known or not known[name].type.tensor_type.elem_type:
            raise ExtractError(f"model {model.name}: outputs: the type of {name!r} in {model.location} is not known")
    return [known[name] for name in model.outputs]
