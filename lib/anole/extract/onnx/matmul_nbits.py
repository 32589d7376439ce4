"""Expansion of ONNX Runtime's `MatMulNBits`, with 4- or 8-bit weights, to `DequantizeLinear` and `MatMul`.

Also widens dequantized 4-bit constants to 8 bits, since TVM has no 4-bit dtype.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from anole.errors import ExtractError

_WIDENED_DTYPES = {TensorProto.INT4: np.int8, TensorProto.UINT4: np.uint8}
_ALLOWED_BITS = (4, 8)
_BLOCK_SIZES = tuple(1 << power for power in range(4, 9))


def expand_matmul_nbits(graph: onnx.GraphProto, where: str) -> None:
    """Replace each `MatMulNBits` in place.

    Args:
        graph: the graph, with weights loaded.
        where: prefix of messages: the model and its file.

    Raises:
        ExtractError: an operator breaks its definition, or reorders input features.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        if node.op_type == "MatMulNBits" and node.domain == "com.microsoft":
            weights, replacements = _MatMulNBits(node, constants, f"{where}: MatMulNBits {node.name!r}").expand()
            graph.initializer.extend(weights)
            graph.node.extend(replacements)
        else:
            graph.node.append(node)


def widen_4bit_constants(graph: onnx.GraphProto) -> None:
    """Widen 4-bit constants that only `DequantizeLinear` reads, in place."""
    consumers = defaultdict[str, set[str]](set)
    for node in graph.node:
        for name in node.input:
            consumers[name].add(node.op_type)
    for tensor in graph.initializer:
        if tensor.data_type in _WIDENED_DTYPES and consumers[tensor.name] == {"DequantizeLinear"}:
            widened = numpy_helper.to_array(tensor).astype(_WIDENED_DTYPES[tensor.data_type])
            tensor.CopyFrom(numpy_helper.from_array(widened, tensor.name))


class _MatMulNBits:
    """A `MatMulNBits`; its weights are integers in blocks of input features, with a row per output feature."""

    def __init__(self, node: onnx.NodeProto, constants: dict[str, TensorProto], where: str) -> None:
        self._node, self._constants, self._where = node, constants, where
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        self._inputs, self._outputs = int(attributes.get("K", 0)), int(attributes.get("N", 0))
        self._bits, self._block = int(attributes.get("bits", 4)), int(attributes.get("block_size", 0))
        for name, value, allowed in (("bits", self._bits, _ALLOWED_BITS), ("block_size", self._block, _BLOCK_SIZES)):
            if value not in allowed:
                raise ExtractError(f"{where}: {name}: found {value}; allowed: {', '.join(map(str, allowed))}")
        if min(self._inputs, self._outputs) < 1:
            raise ExtractError(f"{where}: K and N: found {self._inputs} and {self._outputs}; each must be at least 1")
        if self._has_input(4):
            raise ExtractError(f"{where}: g_idx, which reorders input features, is not supported")
        self._n_blocks = -(-self._inputs // self._block)

    def expand(self) -> tuple[list[TensorProto], list[onnx.NodeProto]]:
        """Return the weights and operators that replace the operator."""
        node, name = self._node, f"{self._node.output[0]}.anole"
        values = self._unpack(self._constant(1, "B", self._n_blocks * self._block * self._bits // 8))
        scales = self._constant(2, "scales", self._n_blocks)
        zeros = np.full(scales.shape, 1 << self._bits - 1, np.uint8)
        if self._has_input(3):
            zeros = self._zero_points()
        parts: dict[str, NDArray[Any]] = {"numbers": values[:, : self._inputs].T, "scales": scales.T, "zeros": zeros.T}
        weight = f"{name}.weight"
        operators = []
        if zeros.dtype == np.uint8:
            operands = [f"{name}.{part}" for part in parts]
            operators.append(helper.make_node("DequantizeLinear", operands, [weight], axis=0, block_size=self._block))
        else:
            blocks = values.reshape(*scales.shape, -1) - zeros[:, :, None]
            parts = {"weight": (blocks * scales[:, :, None]).reshape(values.shape)[:, : self._inputs].T}
        bias = node.input[5] if self._has_input(5) else ""
        product = f"{name}.product" if bias else node.output[0]
        operators.append(helper.make_node("MatMul", [node.input[0], weight], [product], name=node.name))
        if bias:
            operators.append(helper.make_node("Add", [product, bias], [node.output[0]]))
        tensors = [numpy_helper.from_array(np.ascontiguousarray(part), f"{name}.{key}") for key, part in parts.items()]
        return tensors, operators

    def _zero_points(self) -> NDArray[Any]:
        """Return the zero points; they are uint8 if they are packed like the weights."""
        tensor = self._constants.get(self._node.input[3])
        if tensor is not None and tensor.data_type != TensorProto.UINT8:
            return self._constant(3, "zero_points", self._n_blocks)
        return self._unpack(self._constant(3, "zero_points", -(-self._n_blocks * self._bits // 8)))[:, : self._n_blocks]

    def _unpack(self, packed: NDArray[Any]) -> NDArray[Any]:
        """Unpack the integers of each row, lowest bits first."""
        if self._bits == 8:
            return packed
        return np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)

    def _constant(self, index: int, name: str, columns: int) -> NDArray[Any]:
        """Return a constant input, with a row for each output feature."""
        tensor = self._constants.get(self._node.input[index]) if self._has_input(index) else None
        if tensor is None:
            raise ExtractError(f"{self._where}: input {name} must be constant")
        values: NDArray[Any] = numpy_helper.to_array(tensor)
        if values.size != self._outputs * columns:
            shape = f"{self._outputs} x {columns}"
            raise ExtractError(f"{self._where}: {name}: found shape {list(values.shape)}; expected {shape} values")
        return values.reshape(self._outputs, columns)

    def _has_input(self, index: int) -> bool:
        return len(self._node.input) > index and bool(self._node.input[index])
