"""The operators that read and write 8-bit values: products with weights, and operators between them."""

from __future__ import annotations

import onnx

PRODUCTS = ("Conv", "Gemm", "MatMul")

_COMBINING = ("Add", "Mul")
_MOVING = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Split", "Slice", "Pad", "Resize")
_PROPAGATING = (*_COMBINING, *_MOVING)
OPERATORS = [
    *(*PRODUCTS, *_COMBINING, "Concat", "Relu", "Clip", "MaxPool", "AveragePool", "GlobalAveragePool"),
    *_MOVING,
]
"""Operators on 8-bit values; sensitive ones stay in float32: exponentials, norms, and products of two activations."""

_SENSITIVE = ("Sub", "Div", "Reciprocal", "Sqrt", "Pow", "Exp", "Erf", "Tanh", "ReduceMean", "ReduceSum")
"""Parts of norms and activations, in files that decompose these into several operators."""


def float_sums(file: onnx.ModelProto) -> list[str]:
    """Return the element-wise sums and products of activations that stay in float32.

    These are parts of norms and activations, and operators whose result reaches no product with weights in 8 bits, such
    as the sum of attention scores and a mask with huge values, or a sum that a norm reads.
    """
    weights, sensitive, needed = {tensor.name for tensor in file.graph.initializer}, set[str](), set[str]()
    for node in file.graph.node:
        if node.op_type in _SENSITIVE or (node.op_type in _PROPAGATING and sensitive.intersection(node.input)):
            sensitive.update(node.output)
    for node in reversed(file.graph.node):
        if node.op_type in PRODUCTS:
            needed.update(node.input[:1] if node.input[1] in weights else ())
        elif node.op_type in OPERATORS and needed.intersection(node.output):
            needed.update(node.input)
    nodes = [node for node in file.graph.node if node.op_type in _COMBINING]
    return [node.name for node in nodes if sensitive.intersection(node.output) or not needed.intersection(node.output)]
