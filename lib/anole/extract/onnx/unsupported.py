"""Error messages for operators that cannot be imported, with advice on building the part of the model before them."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from anole.errors import shown
from anole.extract.onnx.control_flow import MAX_UNROLLED_OPERATORS
from anole.extract.onnx.expand import AMBIGUOUS_OPERATORS

_VALUE_DEPENDENT_OPERATORS = ("NonMaxSuppression", "NonZero", "StringSplit", "Unique")
"""Operators whose output shape depends on the values of the first input."""

_SHAPE_INPUTS = {
    "AffineGrid": (1,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    **dict.fromkeys("Compress Expand OneHot Reshape Split Squeeze Tile TopK Unsqueeze Upsample".split(), (1,)),
    "ConstantOfShape": (0,),
    "MaxUnpool": (2,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
}
"""By operator, the inputs whose values determine the output's shape."""

_CONTROL_FLOW = {
    "If": "its condition depends on the data, and its branches have values of different shapes; "
    "if it depends on a single input, fix that input by `{value: ...}` in `inputs`",
    "Loop": f"its trip count depends on the data, or it unrolls to more than {MAX_UNROLLED_OPERATORS} operators",
    "Scan": f"it unrolls to more than {MAX_UNROLLED_OPERATORS} operators, or the opset is below 9",
}
_MAX_SHOWN = 6


def explain_unsupported(model: ir.Model, known: Collection[str], names: Collection[str]) -> str | None:
    """Explain why a prepared model cannot be imported, and which of the named values could be its outputs instead.

    Returns:
        The end of an error message, or None if no unsupported operator is found.
    """
    problems: list[str] = []
    unreachable: set[ir.Value] = set()
    last_supported: dict[str | None, None] = {}
    for node in model.graph:
        operands = [value for value in node.inputs if value is not None and value.const_value is None]
        problem = _find_problem(node, known)
        depends_on_unsupported = any(value in unreachable for value in operands)
        if problem is not None and not depends_on_unsupported:
            problems.append(f"{node.op_type} {shown(node.name or node.outputs[0].name or '')}: {problem}")
        if problem is not None or depends_on_unsupported:
            unreachable.update(node.outputs)
            last_supported |= {value.name: None for value in operands if value not in unreachable}
    if not problems:
        return None
    last_supported |= {value.name: None for value in model.graph.outputs if value not in unreachable}
    listed = [*problems[:_MAX_SHOWN], *([f"{len(problems) - _MAX_SHOWN} more"] if len(problems) > _MAX_SHOWN else [])]
    return f"{'; '.join(listed)}. {_advice([str(name) for name in last_supported if name in names])}"


def _find_problem(node: ir.Node, known: Collection[str]) -> str | None:
    if node.domain == "" and node.op_type in _CONTROL_FLOW:
        return _CONTROL_FLOW[node.op_type]
    data_dependent = "the shape of its output depends on the data"
    if node.domain == "" and node.op_type in _VALUE_DEPENDENT_OPERATORS:
        return data_dependent
    if node.domain == "" and node.op_type in _SHAPE_INPUTS:
        shape_inputs = [node.inputs[index] for index in _SHAPE_INPUTS[node.op_type] if index < len(node.inputs)]
        if any(value is not None and value.const_value is None for value in shape_inputs):
            return data_dependent
    is_ambiguous = node.domain == "" and node.op_type in AMBIGUOUS_OPERATORS
    return None if node.op_type in known and not is_ambiguous else "there is no converter for this operator"


def _advice(last_supported: list[str]) -> str:
    if not last_supported:
        return "No part of the model before them can be built"
    return f"To build the part before them, set the model's `outputs: [{', '.join(last_supported[:_MAX_SHOWN])}]`"
