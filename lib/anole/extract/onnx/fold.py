"""Computes what is constant in a model, and removes what is then not needed, such as branches that are never taken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import onnx_ir as ir
import onnxscript.optimizer
from onnx_ir.passes.common import RemoveUnusedNodesPass

_MOST_ELEMENTS = 2**18
"""The largest number of elements of a constant that is computed here; TVM computes larger ones later."""


def fold_constants(model: ir.Model) -> bool:
    """Computes constants in place, among them the shapes of values, and takes branches that are known.

    Returns:
        Whether something has changed.
    """
    with _quiet():
        folded = onnxscript.optimizer.fold_constants(model, onnx_shape_inference=True, should_fold=_should_fold)
        removed = RemoveUnusedNodesPass()(model)
    return bool(folded.modified or removed.modified)


def _should_fold(node: ir.Node) -> bool | None:
    """Returns False for what may be too large, True for what is small, and None if the folder's own rules decide."""
    for output in node.outputs:
        shape = output.shape
        if shape is None or not shape.is_static() or prod(shape.numpy()) > _MOST_ELEMENTS:
            return False
    # The folder would leave it, to keep files small.
    return True if node.op_type == "ConstantOfShape" else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the folder from warning of each operator that it does not fold."""
    logger = logging.getLogger("onnxscript")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
