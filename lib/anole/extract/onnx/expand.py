"""Inlining of model-local functions, and of operators that ONNX defines as functions."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import onnx
import onnx.inliner

from anole.extract.onnx.protos import ONNX_DOMAINS, all_nodes, opset_of, without_weights

AMBIGUOUS_OPERATORS = ("Attention", "GroupNorm")
"""Operators that TVM imports with ONNX Runtime's semantics, although ONNX defines others with the same name."""

_MAX_ROUNDS = 8
"""Max nesting depth of ONNX's own functions."""


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Inline a model's local functions."""
    if not proto.functions:
        return proto
    return without_weights(proto, lambda bare: onnx.inliner.inline_local_functions(bare, convert_version=True))


def expand_operators(proto: onnx.ModelProto, known: Collection[str]) -> onnx.ModelProto:
    """Expand operators that cannot be imported (not in `known`) and that ONNX defines as functions."""
    version = opset_of(proto)
    for _ in range(_MAX_ROUNDS):
        nodes = [node for node in all_nodes(proto.graph) if node.domain in ONNX_DOMAINS]
        unknown = {node.op_type for node in nodes if node.op_type not in known or node.op_type in AMBIGUOUS_OPERATORS}
        names = sorted(name for name in unknown if _is_function(name, version))
        for node in nodes:
            if node.op_type in names:
                _write_defaults(node, version)
        previous = proto
        for name in names:
            proto = _expand(proto, name)
        if proto is previous:
            break
    return proto


def _expand(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Expand one operator type; return the model unchanged if the onnx package cannot."""

    def expand(bare: onnx.ModelProto) -> onnx.ModelProto:
        # The inliner looks up the type of every input, including omitted ones, whose name is empty.
        bare.graph.value_info.append(onnx.helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, None))
        return onnx.inliner.inline_selected_functions(bare, [("", name)], inline_schema_functions=True)

    # An operator that cannot be expanded is reported as unsupported later.
    with suppress(Exception):
        return without_weights(proto, expand)
    return proto


def _write_defaults(node: onnx.NodeProto, version: int) -> None:
    """Write out attribute defaults, which the inliner drops."""
    present = {attribute.name for attribute in node.attribute}
    attributes = onnx.defs.get_schema(node.op_type, version, "").attributes
    defaults = [attribute_.default_value for name, attribute_ in attributes.items() if name not in present]
    node.attribute.extend(default for default in defaults if default.name)


def _is_function(name: str, version: int) -> bool:
    try:
        schema = onnx.defs.get_schema(name, version, "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
