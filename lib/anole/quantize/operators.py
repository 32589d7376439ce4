"""Which operators read and write 8 bits: products with weights, and what lies between them."""

from __future__ import annotations

import onnx

PRODUCTS = ("Conv", "Gemm", "MatMul")

_COMBINING = ("Add", "Mul")
_MOVING = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Split", "Slice", "Pad", "Resize")
_PASSING = (*_COMBINING, *_MOVING)
OPERATORS = [
    *(*PRODUCTS, *_COMBINING, "Concat", "Relu", "Clip", "MaxPool", "AveragePool", "GlobalAveragePool"),
    *_MOVING,
]
"""What reads and writes 8 bits. What is delicate stays in float32: exponentials, norms, and products of two values."""

_DELICATE = ("Sub", "Div", "Reciprocal", "Sqrt", "Pow", "Exp", "Erf", "Tanh", "ReduceMean", "ReduceSum")
"""What norms and activations consist of, in files that write them as many operators."""


def float_sums(file: onnx.ModelProto) -> list[str]:
    """Return the sums and products of values that stay in float32.

    These are parts of norms and activations, and those from which no product with weights reads bytes, such as the sum
    of attention's scores and a mask of huge numbers, or one that a norm reads.
    """
    weights, delicate, read = {tensor.name for tensor in file.graph.initializer}, set[str](), set[str]()
    for node in file.graph.node:
        if node.op_type in _DELICATE or (node.op_type in _PASSING and delicate.intersection(node.input)):
            delicate.update(node.output)
    for node in reversed(file.graph.node):
        if node.op_type in PRODUCTS:
            read.update(node.input[:1] if node.input[1] in weights else ())
        elif node.op_type in OPERATORS and read.intersection(node.output):
            read.update(node.input)
    combining = [node for node in file.graph.node if node.op_type in _COMBINING]
    return [node.name for node in combining if delicate.intersection(node.output) or not read.intersection(node.output)]
