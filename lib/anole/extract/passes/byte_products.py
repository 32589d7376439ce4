"""Products of two computed operands of bytes, each less a zero point: one of the bytes, and sums of either operand."""

from __future__ import annotations

from functools import reduce
from operator import mul

from tvm import ir, relax, te, topi

from anole.ir.mutators import value_of
from anole.ir.normalize_products import transposed_product
from anole.ir.symbols import is_static
from anole.task import BatchMatmul

WORD = 4
"""How many bytes fill a word."""


def multiply_bytes(
    builder: relax.BlockBuilder,
    w: BatchMatmul,
    left: ir.Expr,
    right: ir.Expr,
    left_zero: ir.Expr,
    right_zero: ir.Expr,
) -> ir.Expr:
    """Return the flat product of uint8 and int8, each less a scalar of int32, of type int32.

    The summed numbers are filled up to whole words with zeros, which change neither the product nor a sum.
    """
    emit, axis = builder.emit, -1 if w.transpose_right else -2
    own = _flat(builder, right)
    left, right = _filled(builder, _flat(builder, left), -1), _filled(builder, own, axis)
    product = transposed_product(left, right) if w.transpose_right else relax.op.matmul(left, right, out_dtype="int32")
    if not _is_zero(right_zero):
        rows = emit(relax.op.sum(emit(relax.op.astype(left, "int32")), -1, keepdims=True))
        product = relax.op.subtract(emit(product), emit(relax.op.multiply(rows, right_zero)))
    if not _is_zero(left_zero):
        columns = emit(relax.op.sum(emit(relax.op.astype(right, "int32")), axis))
        summed = relax.const(w.inner) if is_static(own.ty.shape[axis]) else builder.emit_te(_length, own, axis)
        centered = emit(relax.op.subtract(columns, emit(relax.op.multiply(right_zero, summed))))
        of_zero = emit(relax.op.multiply(emit(relax.op.expand_dims(centered, -2)), left_zero))
        product = relax.op.subtract(emit(product), of_zero)
    return emit(product)


def _flat(builder: relax.BlockBuilder, operand: ir.Expr) -> relax.Var:
    """Return an operand with one axis of matrices."""
    *batch, rows, columns = operand.ty.shape
    return builder.emit(relax.op.reshape(operand, [reduce(mul, batch, 1), rows, columns]))


def _filled(builder: relax.BlockBuilder, flat: relax.Var, axis: int) -> relax.Var:
    """Return an operand whose numbers along an axis fill whole words."""
    extent = flat.ty.shape[axis]
    if is_static(extent) and int(extent) % WORD == 0:
        return flat
    missing = [0] * len(flat.ty.shape)
    missing[axis] = (extent + WORD - 1) // WORD * WORD - extent
    zero = relax.const(0, str(flat.ty.dtype))
    return builder.emit_te(pad, flat, zero, [0] * len(missing), missing, primfunc_name_hint="pad")


def _length(data: te.Tensor, axis: int) -> te.Tensor:
    """Return the extent of an axis, as a tensor."""
    return te.compute((), lambda: data.shape[axis].astype("int32"), name="length")


def pad(data: te.Tensor, value: te.Tensor, before: list[int], after: list[int]) -> te.Tensor:
    """Return data between others of one value."""
    return topi.nn.pad(data, before, after, value())


def _is_zero(scalar: ir.Expr) -> bool:
    value = value_of(scalar)
    return value is not None and not value.any()
