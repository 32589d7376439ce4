"""Makes constant what does not depend on the inputs: shapes that are known, and what is computed from them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import onnx_ir as ir
import onnxscript.optimizer
from onnx_ir.passes.common import RemoveUnusedNodesPass

_LIKE_FIRST = (
    "BiasGelu",
    "FastGelu",
    "Gelu",
    "GroupNorm",
    "LayerNormalization",
    "MeanVarianceNormalization",
    "QuickGelu",
    "SimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)
"""Operators whose first output is like the first input, and whose shapes the onnx package does not infer."""

_MAX_ELEMENTS = 2**18
"""The largest number of elements of a constant that is computed here; TVM computes larger ones later."""


def state_defaults(model: ir.Model) -> None:
    """Add attributes in place whose default values the onnx package ignores when it infers shapes."""
    for node in model.graph.all_nodes():
        # The default is 1, and the package takes it for 0.
        if node.domain == "" and node.op_type == "STFT" and "onesided" not in node.attributes:
            node.attributes.add(ir.AttrInt64("onesided", 1))


def tell_shapes(model: ir.Model) -> bool:
    """Add the shapes that the onnx package does not infer, in place; return whether there was a new one."""
    return any([_tell_shape(node) for node in model.graph])


def _tell_shape(node: ir.Node) -> bool:
    data = node.inputs[0] if node.inputs else None
    if data is None or data.shape is None or data.type is None or node.outputs[0].shape is not None:
        return False
    if node.op_type in _LIKE_FIRST:
        shapes = [data.shape]
    elif node.op_type == "DynamicQuantizeLSTM" and data.shape.rank() == 3:
        length, batch, _ = data.shape
        hidden = node.attributes["hidden_size"].as_int()
        direction = node.attributes["direction"].as_string() if "direction" in node.attributes else "forward"
        n_directions = 2 if direction == "bidirectional" else 1
        state = ir.Shape([n_directions, batch, hidden])
        shapes = [ir.Shape([length, n_directions, batch, hidden]), state, state]
    else:
        return False
    for output, shape in zip(node.outputs, shapes, strict=False):
        output.shape, output.type = shape, data.type
    return True


def fold_constants(model: ir.Model) -> None:
    """Compute constants in place, among them the shapes of values, and take branches that are known."""
    with _quiet():
        onnxscript.optimizer.fold_constants(model, onnx_shape_inference=True, should_fold=_should_fold)
        RemoveUnusedNodesPass()(model)


def _should_fold(node: ir.Node) -> bool | None:
    """Return False for what may be too large, True for what is small, and None if the folder's own rules decide."""
    for output in node.outputs:
        shape = output.shape
        if shape is None or not shape.is_static() or prod(shape.numpy()) > _MAX_ELEMENTS:
            return False
    # The folder would leave it, to keep files small.
    return True if node.op_type == "ConstantOfShape" else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the folder from warning of each operator that it does not fold."""
    logger = logging.getLogger("onnxscript")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
