"""Constant folding of ONNX graphs, including shapes and values that are computed from shapes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import onnx_ir as ir
import onnxscript.optimizer
from onnx_ir.passes.common import RemoveUnusedNodesPass

_SAME_SHAPE_AS_INPUT = (
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
"""Operators whose first output has the shape and type of the first input, but which onnx's shape inference skips."""

_MAX_ELEMENTS = 2**18
"""Max number of elements of a constant to fold here; TVM folds larger constants later."""


def write_default_attributes(model: ir.Model) -> None:
    """Write out, in place, attribute defaults that onnx's shape inference gets wrong."""
    for node in model.graph.all_nodes():
        # The default is 1, but shape inference assumes 0.
        if node.domain == "" and node.op_type == "STFT" and "onesided" not in node.attributes:
            node.attributes.add(ir.AttrInt64("onesided", 1))


def infer_missing_shapes(model: ir.Model) -> bool:
    """Add output shapes that onnx's shape inference does not determine, in place; return whether any was added."""
    return any([_infer_shape(node) for node in model.graph])


def _infer_shape(node: ir.Node) -> bool:
    data = node.inputs[0] if node.inputs else None
    if data is None or data.shape is None or data.type is None or node.outputs[0].shape is not None:
        return False
    if node.op_type in _SAME_SHAPE_AS_INPUT:
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
    """Fold constants and shapes in place, and inline branches whose condition is constant."""
    with _silence_folder():
        onnxscript.optimizer.fold_constants(model, onnx_shape_inference=True, should_fold=_should_fold)
        RemoveUnusedNodesPass()(model)


def _should_fold(node: ir.Node) -> bool | None:
    """Return False if an output may be too large, True to force folding, and None to apply the folder's own rules."""
    for output in node.outputs:
        shape = output.shape
        if shape is None or not shape.is_static() or prod(shape.numpy()) > _MAX_ELEMENTS:
            return False
    # The folder would skip it to keep files small.
    return True if node.op_type == "ConstantOfShape" else None


@contextmanager
def _silence_folder() -> Iterator[None]:
    """Silence the folder's warning for each operator that it does not fold."""
    logger = logging.getLogger("onnxscript")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
