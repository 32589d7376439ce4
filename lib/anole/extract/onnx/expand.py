"""Replaces calls of functions, and operators that ONNX defines by a function, by the operators that they consist of."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx
import onnx.inliner

from anole.extract.onnx.bare import without_weights

_MICROSOFT = ("Attention", "GroupNorm")
"""Operators that TVM's importer knows as ONNX Runtime defines them, and ONNX has others of the same name."""

_MOST_ROUNDS = 8
"""How deep functions that ONNX defines call each other."""


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model without functions of its own."""
    if not proto.functions:
        return proto
    return without_weights(proto, lambda bare: onnx.inliner.inline_local_functions(bare, convert_version=True))


def expand_operators(proto: onnx.ModelProto, known: Collection[str]) -> onnx.ModelProto:
    """Returns a model without operators that are not known and that ONNX defines by a function.

    Args:
        proto: the model.
        known: the operators that can be imported.
    """
    version = next(each.version for each in proto.opset_import if each.domain in ("", "ai.onnx"))
    for _ in range(_MOST_ROUNDS):
        found = {node.op_type for node in _nodes(proto.graph) if node.domain in ("", "ai.onnx")}
        unknown = sorted(name for name in found if name not in known or name in _MICROSOFT)
        names = [("", name) for name in unknown if _is_function(name, version)]
        if not names:
            break

        def expand(bare: onnx.ModelProto, names: list[tuple[str, str]] = names) -> onnx.ModelProto:
            return onnx.inliner.inline_selected_functions(bare, names, inline_schema_functions=True)

        proto = without_weights(proto, expand)
    return proto


def _is_function(name: str, version: int) -> bool:
    try:
        schema = onnx.defs.get_schema(name, version, "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yields the operators of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for each in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _nodes(each)
