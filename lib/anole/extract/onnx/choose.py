"""Computes both branches of an `If` whose condition depends on the data, and chooses between their values."""

from __future__ import annotations

import onnx_ir as ir

from anole.extract.onnx.splice import Splice


def choose_branches(model: ir.Model) -> bool:
    """Replaces `If` of the main graph in place, where both branches have values of the same fixed shape.

    Returns:
        Whether something has changed.
    """
    found = [node for node in model.graph if node.domain in ("", "ai.onnx") and node.op_type == "If"]
    return any([_choose(node) for node in found])


def _choose(node: ir.Node) -> bool:
    condition = node.inputs[0]
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    pairs = list(zip(*(branch.outputs for branch in branches), strict=True))
    if condition is None or condition.shape is None or not all(_is_alike(*pair) for pair in pairs):
        return False
    if condition.shape.rank() and not all(pair[0].shape.rank() for pair in pairs):
        return False
    result = Splice(node)
    pairs = list(zip(*(result.add_body(branch, []) for branch in branches), strict=True))
    result.replace([result.add("Where", [condition, *pair]) for pair in pairs])
    return True


def _is_alike(first: ir.Value, second: ir.Value) -> bool:
    """Returns whether two values are tensors of the same fixed shape and type."""
    if first.shape is None or second.shape is None or not isinstance(first.type, ir.TensorType):
        return False
    return first.shape.is_static() and first.shape == second.shape and first.dtype == second.dtype
