"""8-bit batched matmuls of two activations; sums of the operands correct for their zero points."""

from __future__ import annotations

from functools import reduce
from operator import mul

from tvm import ir, relax, te, topi

from anole.ir.mutators import value_of
from anole.ir.normalize_products import transposed_product
from anole.ir.symbols import is_static
from anole.task import BatchMatmul

PACKED_LANES = 4
"""The number of 8-bit values that are packed into a 32-bit word."""


def multiply_8bit(
    builder: relax.BlockBuilder, w: BatchMatmul, left: ir.Expr, right: ir.Expr, left_zero: ir.Expr, right_zero: ir.Expr
) -> ir.Expr:
    """Multiply uint8 by int8, each minus an int32 zero point, with a single batch axis and an int32 result.

    The reduction axis is padded to a multiple of `PACKED_LANES` with zeros, which change neither the product nor a sum.
    """
    emit, axis = builder.emit, -1 if w.transpose_right else -2
    data = _flatten_batch(builder, right)
    left, right = _pad_lanes(builder, _flatten_batch(builder, left), -1), _pad_lanes(builder, data, axis)
    product = transposed_product(left, right) if w.transpose_right else relax.op.matmul(left, right, out_dtype="int32")
    if not _is_zero(right_zero):
        rows = emit(relax.op.sum(emit(relax.op.astype(left, "int32")), -1, keepdims=True))
        product = relax.op.subtract(emit(product), emit(relax.op.multiply(rows, right_zero)))
    if not _is_zero(left_zero):
        columns = emit(relax.op.sum(emit(relax.op.astype(right, "int32")), axis))
        length = relax.const(w.inner) if is_static(data.ty.shape[axis]) else builder.emit_te(_length, data, axis)
        centered = emit(relax.op.subtract(columns, emit(relax.op.multiply(right_zero, length))))
        correction = emit(relax.op.multiply(emit(relax.op.expand_dims(centered, -2)), left_zero))
        product = relax.op.subtract(emit(product), correction)
    return emit(product)


def _flatten_batch(builder: relax.BlockBuilder, operand: ir.Expr) -> relax.Var:
    """Reshape an operand to a single batch axis."""
    *batch, rows, columns = operand.ty.shape
    return builder.emit(relax.op.reshape(operand, [reduce(mul, batch, 1), rows, columns]))


def _pad_lanes(builder: relax.BlockBuilder, flat: relax.Var, axis: int) -> relax.Var:
    """Pad an axis of an operand to a multiple of `PACKED_LANES`."""
    extent = flat.ty.shape[axis]
    if is_static(extent) and int(extent) % PACKED_LANES == 0:
        return flat
    padding = [0] * len(flat.ty.shape)
    padding[axis] = (extent + PACKED_LANES - 1) // PACKED_LANES * PACKED_LANES - extent
    zero = relax.const(0, str(flat.ty.dtype))
    return builder.emit_te(pad, flat, zero, [0] * len(padding), padding, primfunc_name_hint="pad")


def _length(data: te.Tensor, axis: int) -> te.Tensor:
    """Return the extent of an axis as a tensor."""
    return te.compute((), lambda: data.shape[axis].astype("int32"), name="length")


def pad(data: te.Tensor, value: te.Tensor, before: list[int], after: list[int]) -> te.Tensor:
    """Pad data with a constant."""
    return topi.nn.pad(data, before, after, value())


def _is_zero(scalar: ir.Expr) -> bool:
    value = value_of(scalar)
    return value is not None and not value.any()
