"""Preparation of ONNX models for import: fix shapes, inline functions, and remove control flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress

import onnx
import onnx.version_converter
import onnx_ir as ir

from anole.documents.build import TensorInfo
from anole.errors import ExtractError
from anole.extract.onnx.constants import fold_constants, infer_missing_shapes, write_default_attributes
from anole.extract.onnx.control_flow import replace_ifs, unroll_loops
from anole.extract.onnx.dimensions import fix_inputs
from anole.extract.onnx.expand import expand_operators, inline_functions
from anole.extract.onnx.float16 import compute_in_float32
from anole.extract.onnx.matmul_nbits import expand_matmul_nbits, widen_4bit_constants
from anole.extract.onnx.protos import opset_of, without_weights
from anole.extract.onnx.unsupported import explain_unsupported

_MIN_OPSET, _NEW_OPSET = 10, 13
"""Models below the first opset are converted to the second, since TVM does not import some older operator forms."""

_MAX_ROUNDS = 12
"""Max number of folding rounds; each may reveal a loop's trip count, and the next round a nested loop's."""


def prepare(
    proto: onnx.ModelProto, inputs: tuple[TensorInfo, ...], known: Collection[str], where: str
) -> onnx.ModelProto:
    """Return an equivalent model with fixed input shapes that can be imported.

    Args:
        proto: the model, checked and with its weights; changed in place.
        inputs: the inputs with their shapes.
        known: the operator types that can be imported.
        where: prefix of messages: the model and its file.

    Raises:
        ExtractError: an operator cannot be imported, or the shape of its output depends on the data.
    """
    names = {name for node in proto.graph.node for name in node.output if name}
    fix_inputs(proto, inputs)
    _lift_constants(proto.graph)
    expand_matmul_nbits(proto.graph, where)
    widen_4bit_constants(proto.graph)
    proto = _with_min_opset(inline_functions(proto))
    model = ir.from_proto(expand_operators(proto, known))
    write_default_attributes(model)
    for _ in range(_MAX_ROUNDS):
        fold_constants(model)
        # A list prevents short-circuit evaluation: each step may enable the others.
        if not any([infer_missing_shapes(model), unroll_loops(model), replace_ifs(model)]):
            break
    problem = explain_unsupported(model, known, names)
    if problem is not None:
        raise ExtractError(f"{where}: {problem}")
    return compute_in_float32(ir.to_proto(model))


def count_operators(proto: onnx.ModelProto) -> Counter[str]:
    """Count the operators of a model's main graph by type, without constants."""
    return Counter(node.op_type for node in proto.graph.node if node.op_type != "Constant")


def differences(before: Counter[str], after: Counter[str]) -> tuple[str, ...]:
    """Describe how the operator counts differ."""
    names = sorted(before.keys() | after.keys())
    return tuple(f"{name}: {before[name]} before, {after[name]} after" for name in names if before[name] != after[name])


def _lift_constants(graph: onnx.GraphProto) -> None:
    """Turn `Constant` operators into initializers."""
    outputs = {value.name for value in graph.output}
    remaining = []
    for node in graph.node:
        value = node.attribute[0] if node.op_type == "Constant" and len(node.attribute) == 1 else None
        if value is None or value.name != "value" or node.output[0] in outputs:
            remaining.append(node)
            continue
        graph.initializer.append(value.t)
        graph.initializer[-1].name = node.output[0]
    del graph.node[:]
    graph.node.extend(remaining)


def _with_min_opset(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Convert a model to an opset that TVM imports, if the onnx package can convert it."""
    # The converter misreads opset-8 Scan, which has a batch axis.
    if opset_of(proto) < _MIN_OPSET and not any(node.op_type == "Scan" for node in proto.graph.node):
        # TVM may still import a model that cannot be converted.
        with suppress(Exception):
            return without_weights(proto, lambda bare: onnx.version_converter.convert_version(bare, _NEW_OPSET))
    return proto
