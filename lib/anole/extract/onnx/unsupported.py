"""Finds operators that cannot be imported, and what is before them."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from anole.errors import shown
from anole.extract.onnx.control_flow import MAX_UNROLLED
from anole.extract.onnx.expand import OTHERS_OF_THE_NAME

_BY_VALUES = ("NonMaxSuppression", "NonZero", "StringSplit", "Unique")
"""Operators whose output has a shape that depends on the values of the first input."""

_BY_INPUTS = {
    "AffineGrid": (1,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "MaxUnpool": (2,),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""The inputs on whose values the output's shape depends."""

_CONTROL = {
    "If": "its condition depends on the data, and its branches have values of different shapes; "
    "if it depends on one input only, fix that one by `{value: ...}` in `inputs`",
    "Loop": f"its number of turns depends on the data, or is too large: {MAX_UNROLLED} operators are the most in all",
    "Scan": f"its number of turns is too large ({MAX_UNROLLED} operators are the most in all), or the opset is below 9",
}
_LISTED = 6


def explain_unsupported(model: ir.Model, known: Collection[str], names: Collection[str]) -> str | None:
    """Say why a prepared model cannot be imported, and which of some values the user can ask for instead.

    Returns:
        The end of an error message, or None if nothing is known to be in the way.
    """
    problems: list[str] = []
    behind: set[ir.Value] = set()
    before: dict[str | None, None] = {}
    for node in model.graph:
        reads = [value for value in node.inputs if value is not None and value.const_value is None]
        problem = _problem(node, known)
        is_behind = any(value in behind for value in reads)
        if problem is not None and not is_behind:
            problems.append(f"{node.op_type} {shown(node.name or node.outputs[0].name or '')}: {problem}")
        if problem is not None or is_behind:
            behind.update(node.outputs)
            before |= {value.name: None for value in reads if value not in behind}
    if not problems:
        return None
    before |= {value.name: None for value in model.graph.outputs if value not in behind}
    listed = [*problems[:_LISTED], *([f"{len(problems) - _LISTED} more"] if len(problems) > _LISTED else [])]
    return f"{'; '.join(listed)}. {_advice([str(name) for name in before if name in names])}"


def _problem(node: ir.Node, known: Collection[str]) -> str | None:
    if node.domain == "" and node.op_type in _CONTROL:
        return _CONTROL[node.op_type]
    by_data = "the shape of its output depends on the data"
    if node.domain == "" and node.op_type in _BY_VALUES:
        return by_data
    if node.domain == "" and node.op_type in _BY_INPUTS:
        given = [node.inputs[index] for index in _BY_INPUTS[node.op_type] if index < len(node.inputs)]
        if any(value is not None and value.const_value is None for value in given):
            return by_data
    is_other = node.domain == "" and node.op_type in OTHERS_OF_THE_NAME
    return None if node.op_type in known and not is_other else "there is no converter for this operator"


def _advice(before: list[str]) -> str:
    if not before:
        return "Nothing before them can be built"
    return f"To build what is before, give the model `outputs: [{', '.join(before[:_LISTED])}]`"
