"""Replaces calls of functions, and operators that ONNX defines by a function, by the operators that they consist of."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import onnx
import onnx.inliner

from anole.extract.onnx.protos import OWN_DOMAINS, all_nodes, opset_of, without_weights

OTHERS_OF_THE_NAME = ("Attention", "GroupNorm")
"""Operators that TVM's importer knows as ONNX Runtime defines them; ONNX has others of the same name."""

_MAX_ROUNDS = 8
"""How deep functions that ONNX defines call each other."""


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without functions of its own."""
    if not proto.functions:
        return proto
    return without_weights(proto, lambda bare: onnx.inliner.inline_local_functions(bare, convert_version=True))


def expand_operators(proto: onnx.ModelProto, known: Collection[str]) -> onnx.ModelProto:
    """Return a model without operators that are not known and that ONNX defines by a function."""
    version = opset_of(proto)
    for _ in range(_MAX_ROUNDS):
        own = [node for node in all_nodes(proto.graph) if node.domain in OWN_DOMAINS]
        unknown = {node.op_type for node in own if node.op_type not in known or node.op_type in OTHERS_OF_THE_NAME}
        names = sorted(name for name in unknown if _is_function(name, version))
        for node in own:
            if node.op_type in names:
                _state_defaults(node, version)
        before = proto
        for name in names:
            proto = _expanded(proto, name)
        if proto is before:
            break
    return proto


def _expanded(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Return a model with an operator expanded, or as it was if the onnx package cannot do that."""

    def expand(bare: onnx.ModelProto) -> onnx.ModelProto:
        # The inliner asks for the type of every input, even of one that is left out between others.
        bare.graph.value_info.append(onnx.helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, None))
        return onnx.inliner.inline_selected_functions(bare, [("", name)], inline_schema_functions=True)

    # An operator that the package cannot expand is told to be missing.
    with suppress(Exception):
        return without_weights(proto, expand)
    return proto


def _state_defaults(node: onnx.NodeProto, version: int) -> None:
    """Add the attributes that have their default values, which the onnx package forgets."""
    given = {attribute.name for attribute in node.attribute}
    attributes = onnx.defs.get_schema(node.op_type, version, "").attributes
    defaults = [each.default_value for name, each in attributes.items() if name not in given]
    node.attribute.extend(default for default in defaults if default.name)


def _is_function(name: str, version: int) -> bool:
    try:
        schema = onnx.defs.get_schema(name, version, "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
