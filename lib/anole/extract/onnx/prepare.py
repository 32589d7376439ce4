"""Brings an ONNX model into a form that can be imported: with fixed shapes, and without functions and control flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress

import onnx
import onnx.version_converter
import onnx_ir as ir

from anole.documents.tensor_info import TensorInfo
from anole.errors import ExtractError
from anole.extract.onnx.constants import fold_constants, state_defaults, tell_shapes
from anole.extract.onnx.control_flow import choose_branches, unroll_loops
from anole.extract.onnx.dimensions import fix_inputs
from anole.extract.onnx.expand import expand_operators, inline_functions
from anole.extract.onnx.float16 import compute_in_float32
from anole.extract.onnx.matmul_nbits import spell_out_products, widen_nibbles
from anole.extract.onnx.protos import opset_of, without_weights
from anole.extract.onnx.unsupported import explain_unsupported

_MIN_OPSET, _RAISED_OPSET = 10, 13
"""Models of versions below the first are raised to the second: TVM's importer lacks some of their operators' forms."""

_MAX_ROUNDS = 12
"""How often constants are folded, since each fold may tell how often a loop runs, and the next one within it."""


def prepare(
    proto: onnx.ModelProto, inputs: tuple[TensorInfo, ...], known: Collection[str], where: str
) -> onnx.ModelProto:
    """Return a model that computes the same for inputs of fixed shapes, and that can be imported.

    Args:
        proto: the model, checked and with its weights; it is changed.
        inputs: the inputs with their shapes.
        known: the operators that can be imported.
        where: the model and its file, which begin each message.

    Raises:
        ExtractError: an operator cannot be imported, or the shape of its output depends on the data.
    """
    names = {name for node in proto.graph.node for name in node.output if name}
    fix_inputs(proto, inputs)
    _lift_constants(proto.graph)
    spell_out_products(proto.graph, where)
    widen_nibbles(proto.graph)
    proto = _raised(inline_functions(proto))
    model = ir.from_proto(expand_operators(proto, known))
    state_defaults(model)
    for _ in range(_MAX_ROUNDS):
        fold_constants(model)
        # All of them, since each may make room for another.
        if not any([tell_shapes(model), unroll_loops(model), choose_branches(model)]):
            break
    problem = explain_unsupported(model, known, names)
    if problem is not None:
        raise ExtractError(f"{where}: {problem}")
    return compute_in_float32(ir.to_proto(model))


def count_operators(proto: onnx.ModelProto) -> Counter[str]:
    """Return how often each operator stands in a model's main graph; constants do not count."""
    return Counter(node.op_type for node in proto.graph.node if node.op_type != "Constant")


def differences(before: Counter[str], after: Counter[str]) -> tuple[str, ...]:
    """Return in words how the numbers of operators differ."""
    names = sorted(before.keys() | after.keys())
    return tuple(f"{name}: {before[name]} before, {after[name]} after" for name in names if before[name] != after[name])


def _lift_constants(graph: onnx.GraphProto) -> None:
    """Make tensors that are operators weights, as they are in other files."""
    outputs = {value.name for value in graph.output}
    rest = []
    for node in graph.node:
        value = node.attribute[0] if node.op_type == "Constant" and len(node.attribute) == 1 else None
        if value is None or value.name != "value" or node.output[0] in outputs:
            rest.append(node)
            continue
        graph.initializer.append(value.t)
        graph.initializer[-1].name = node.output[0]
    del graph.node[:]
    graph.node.extend(rest)


def _raised(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of a version that TVM's importer knows, if the onnx package can convert it."""
    # The converter takes a scan with a batch, which version 8 has, for one without.
    if opset_of(proto) < _MIN_OPSET and not any(node.op_type == "Scan" for node in proto.graph.node):
        # What it cannot convert may be imported all the same.
        with suppress(Exception):
            return without_weights(proto, lambda bare: onnx.version_converter.convert_version(bare, _RAISED_OPSET))
    return proto
