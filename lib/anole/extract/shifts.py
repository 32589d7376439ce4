"""Bit shifts as in ONNX and torch, including shifts by at least the bit width, which LLVM leaves undefined."""

from __future__ import annotations

import numpy as np
from tvm import ir, relax

from anole.ir.mutators import value_of


def shift(data: ir.Expr, amount: ir.Expr, is_right: bool) -> ir.Expr:
    """Shift integers; negative shifts and shifts by all bits give 0, or -1 for negative values shifted right."""
    shift = relax.op.right_shift if is_right else relax.op.left_shift
    dtype, constant = str(data.ty.dtype), value_of(amount)
    bits, is_signed = 8 * np.dtype(dtype).itemsize, not dtype.startswith("u")
    if constant is not None and np.all((constant >= 0) & (constant < bits)):
        return shift(data, amount)
    zero = relax.const(0, dtype)
    is_within = relax.op.less(amount, relax.const(bits, dtype))
    if is_signed:
        is_within = relax.op.logical_and(is_within, relax.op.greater_equal(amount, zero))
    sign = shift(data, relax.const(bits - 1, dtype)) if is_right and is_signed else zero
    return relax.op.where(is_within, shift(data, relax.op.where(is_within, amount, zero)), sign)
