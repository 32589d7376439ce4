"""The operators that read and write 8-bit values: convolutions, matrix products, and operators between them."""

from __future__ import annotations

import onnx

PRODUCTS = ("Conv", "Gemm", "MatMul")

_ARITHMETIC = ("Add", "Mul")
_DATA_MOVEMENT = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Split", "Slice", "Pad", "Resize")
_PROPAGATING = (*_ARITHMETIC, *_DATA_MOVEMENT)
OPERATORS = [
    *(*PRODUCTS, *_ARITHMETIC, "Concat", "Relu", "Clip", "MaxPool", "AveragePool", "GlobalAveragePool"),
    *_DATA_MOVEMENT,
]
"""Operators on 8-bit values, without sensitive ones: exponentials, normalization, matmuls of two activations."""

_SENSITIVE_OPS = ("Sub", "Div", "Reciprocal", "Sqrt", "Pow", "Exp", "Erf", "Tanh", "ReduceMean", "ReduceSum")
"""Parts of normalization layers and activation functions, in files that decompose these into several operators."""


def find_float_sums(proto: onnx.ModelProto) -> list[str]:
    """Return the names of the element-wise additions and multiplications of activations that stay in float32.

    These are parts of normalization layers and activation functions, and operators whose result reaches no 8-bit layer.
    Examples are the sum of attention scores and a mask with huge values, or a sum that a normalization layer reads.
    """
    weights, sensitive, needed = {tensor.name for tensor in proto.graph.initializer}, set[str](), set[str]()
    for node in proto.graph.node:
        if node.op_type in _SENSITIVE_OPS or (node.op_type in _PROPAGATING and sensitive.intersection(node.input)):
            sensitive.update(node.output)
    for node in reversed(proto.graph.node):
        if node.op_type in PRODUCTS:
            needed.update(node.input[:1] if node.input[1] in weights else ())
        elif node.op_type in OPERATORS and needed.intersection(node.output):
            needed.update(node.input)
    nodes = [node for node in proto.graph.node if node.op_type in _ARITHMETIC]
    return [node.name for node in nodes if sensitive.intersection(node.output) or not needed.intersection(node.output)]
