"""Recurrent layers, as one dense layer on the inputs of all steps and one kernel for the time loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from tvm import ir, relax

from anole.ir.mutators import extents
from anole.targets.shared.recurrence import LANES, Recurrence
from anole.targets.shared.recurrent_cell import HIDDEN
from anole.targets.shared.recurrent_kernel import recurrent_kernel


@dataclass(frozen=True)
class Scales:
    """The scales of a quantized layer, whose data and weights are integers minus their zero points.

    Data and W are stored as float32, R in the dtype given by the recurrence.

    Attributes:
        data: the data's scale, a scalar.
        weight, recurrent: the weights' scales, each of shape (directions, gates * hidden) or (directions, 1).
        parts: ranges of the inputs; within each range, sums of products with W are exact in float32.
    """

    data: ir.Expr
    weight: ir.Expr
    recurrent: ir.Expr
    parts: tuple[slice, ...]


@dataclass(frozen=True)
class Operands:
    """The operands of a recurrent layer, as defined by ONNX's operators; gates are in ONNX's order.

    Attributes:
        data: shape (steps, batch, inputs), or (batch, steps, inputs) if the recurrence is `batch_first`.
        weight: W, shape (directions, gates * hidden, inputs).
        recurrent: R, shape (directions, gates * hidden, hidden).
        bias: the biases of W and of R, concatenated, shape (directions, 2 * gates * hidden); None for zeros.
        initial_h, initial_c: shape (directions, batch, hidden); None for zeros.
        peepholes: shape (directions, 3 * hidden), if the recurrence has them.
        lengths: shape (batch,), if the recurrence has them.
        scales: the scales, if the recurrence is quantized.
    """

    data: ir.Expr
    weight: ir.Expr
    recurrent: ir.Expr
    bias: ir.Expr | None = None
    initial_h: ir.Expr | None = None
    initial_c: ir.Expr | None = None
    peepholes: ir.Expr | None = None
    lengths: ir.Expr | None = None
    scales: Scales | None = None


def emit_recurrence(builder: relax.BlockBuilder, recurrence: Recurrence, operands: Operands) -> list[relax.Var]:
    """Emit a recurrent layer; return its states after each step, the last one, and an LSTM's last cell state."""
    return _Emitter(builder, recurrence, operands).results()


class _Emitter:
    def __init__(self, builder: relax.BlockBuilder, recurrence: Recurrence, operands: Operands) -> None:
        self._builder, self._emit = builder, builder.emit
        self._spec, self._operands = recurrence, operands
        self._columns = recurrence.directions * recurrence.gates * recurrence.padded

    def results(self) -> list[relax.Var]:
        spec, operands = self._spec, self._operands
        values = {
            "projected": self._project_inputs(),
            "recurrent": self._pack_recurrent_weights(),
            "initial_h": self._state(operands.initial_h),
            "initial_c": self._state(operands.initial_c),
            "bias": self._hidden_bias(),
            "peepholes": None if operands.peepholes is None else self._spread_to_gates(operands.peepholes, 3),
            "scales": None if operands.scales is None else self._spread_to_gates(operands.scales.recurrent, spec.gates),
            "lengths": operands.lengths,
        }
        function = self._builder.add_func(recurrent_kernel(spec), spec.cell)
        types = [relax.TensorType(result.shape, result.dtype) for result in spec.results]
        operands_in_order = [values[parameter.name] for parameter in spec.parameters]
        arguments = [value if isinstance(value, relax.Var) else self._emit(value) for value in operands_in_order]
        outputs = self._emit(relax.call_tir(function, arguments, types))
        return [self._emit(relax.TupleGetItem(outputs, index)) for index in range(len(types))]

    def _project_inputs(self) -> ir.Expr:
        """Multiply all inputs with the weights W, and add the biases."""
        spec, scales = self._spec, self._operands.scales
        directions, inputs = spec.directions, extents(self._operands.data)[-1]
        weight = self._reshape(self._operands.weight, [directions, spec.gates, spec.hidden, inputs])
        weight = self._emit(relax.op.permute_dims(self._pad_hidden(weight), [3, 0, 1, 2]))
        weight = self._reshape(weight, [inputs, self._columns])
        if scales is None:
            product = self._emit(relax.op.matmul(self._operands.data, weight))
        else:
            product = self._emit(relax.op.astype(self._integer_product(weight, scales.parts), "float32"))
            columns = self._reshape(self._spread_to_gates(scales.weight, spec.gates), [self._columns])
            product = self._emit(relax.op.multiply(product, self._emit(relax.op.multiply(scales.data, columns))))
        if self._operands.bias is not None:
            product = self._emit(relax.op.add(product, self._outer_bias()))
        return self._reshape(product, [*extents(self._operands.data)[:2], directions, spec.gates, spec.padded])

    def _integer_product(self, weight: ir.Expr, parts: Sequence[slice]) -> ir.Expr:
        """Return an integer product in int32; see `anole.extract.onnx.operators.integer_products`."""
        data, rank = self._operands.data, len(extents(self._operands.data))
        products = []
        for part in parts:
            operands = data, weight
            if len(parts) > 1:
                axes = (rank - 1, 0)
                operands = tuple(
                    self._emit(relax.op.strided_slice(operand, [axis], [part.start], [part.stop]))
                    for operand, axis in zip(operands, axes, strict=True)
                )
            products.append(self._emit(relax.op.matmul(*operands, out_dtype="int32")))
        return reduce(lambda total, product: self._emit(relax.op.add(total, product)), products)

    def _pack_recurrent_weights(self) -> ir.Expr:
        """Pack the weights R block by block."""
        spec = self._spec
        weight = self._reshape(self._operands.recurrent, [spec.directions, spec.gates, spec.hidden, spec.hidden])
        shape = [spec.directions, spec.gates, spec.blocks, LANES, spec.hidden]
        blocks = self._reshape(self._pad_hidden(weight), shape)
        return self._emit(relax.op.permute_dims(blocks, [0, 2, 4, 1, 3]))

    def _outer_bias(self) -> ir.Expr:
        """Return the sum of the biases that are added before the loop, shape (columns,)."""
        spec, mask = self._spec, np.ones((1, self._spec.gates, 1), np.float32)
        if spec.reset_after:
            mask[:, HIDDEN] = 0
        inner = self._emit(relax.op.multiply(self._bias_of(1), relax.const(mask)))
        return self._reshape(self._emit(relax.op.add(self._bias_of(0), inner)), [self._columns])

    def _hidden_bias(self) -> ir.Expr | None:
        """Return the bias that is added within the loop, shape (directions, padded)."""
        spec = self._spec
        if not spec.reset_after:
            return None
        if self._operands.bias is None:
            return _zeros(spec.directions, spec.padded)
        hidden = relax.op.take(self._bias_of(1), relax.const(np.array([HIDDEN])), 1, mode="clip")
        return self._reshape(self._emit(hidden), [spec.directions, spec.padded])

    def _bias_of(self, index: int) -> ir.Expr:
        """Return the bias of W (0) or of R (1), shape (directions, gates, padded)."""
        spec = self._spec
        biases = self._reshape(self._operands.bias, [spec.directions, 2, spec.gates * spec.hidden])
        bias = self._emit(relax.op.take(biases, relax.const(np.array([index])), 1, mode="clip"))
        return self._spread_to_gates(self._reshape(bias, [spec.directions, spec.gates * spec.hidden]), spec.gates)

    def _spread_to_gates(self, value: ir.Expr, gates: int) -> ir.Expr:
        """Broadcast values per hidden unit or per direction to shape (directions, gates, padded)."""
        spec = self._spec
        if extents(value)[1] == 1:
            ones = relax.const(np.ones((1, gates, spec.padded), np.float32))
            return self._emit(relax.op.multiply(self._reshape(value, [spec.directions, 1, 1]), ones))
        return self._pad_hidden(self._reshape(value, [spec.directions, gates, spec.hidden]))

    def _state(self, value: ir.Expr | None) -> ir.Expr:
        spec = self._spec
        return _zeros(spec.directions, spec.batch, spec.hidden) if value is None else value

    def _pad_hidden(self, value: ir.Expr) -> ir.Expr:
        """Pad the hidden units, along the third axis, with zeros."""
        directions, gates, hidden, *rest = extents(value)
        if hidden == self._spec.padded:
            return value
        zeros = _zeros(directions, gates, self._spec.padded - hidden, *rest, dtype=str(value.ty.dtype))
        return self._emit(relax.op.concat([value, zeros], 2))

    def _reshape(self, value: ir.Expr, shape: Sequence[int]) -> ir.Expr:
        return value if extents(value) == list(shape) else self._emit(relax.op.reshape(value, list(shape)))


def _zeros(*shape: int, dtype: str = "float32") -> ir.Expr:
    return relax.const(np.zeros(shape, dtype), dtype)
