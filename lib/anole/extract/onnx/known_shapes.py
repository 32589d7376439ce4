"""Tells shapes that the onnx package does not infer, or infers wrongly, so that what depends on them is constant."""

from __future__ import annotations

import onnx_ir as ir

_LIKE_FIRST = (
    "BiasGelu",
    "FastGelu",
    "Gelu",
    "GroupNorm",
    "LayerNormalization",
    "QuickGelu",
    "SimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)
"""Operators of ONNX Runtime whose first output is like the first input."""


def state_defaults(model: ir.Model) -> None:
    """Adds attributes in place whose default values the onnx package ignores when it infers shapes."""
    for node in model.graph.all_nodes():
        # The default is 1, and the package takes it for 0.
        if node.domain == "" and node.op_type == "STFT" and "onesided" not in node.attributes:
            node.attributes.add(ir.AttrInt64("onesided", 1))


def tell_shapes(model: ir.Model) -> bool:
    """Writes the shapes of outputs of ONNX Runtime's own operators into a model, in place, where the inputs' are known.

    Returns:
        Whether a shape was added.
    """
    found = [node for node in model.graph if node.domain == "com.microsoft"]
    return any([_tell_shape(node) for node in found])


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
