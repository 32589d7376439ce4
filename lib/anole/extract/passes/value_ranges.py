"""Finds the bytes behind the operands of products of whole numbers: what is known to be one of 256 numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import ir, relax

from anole.ir.mutators import extents, operator_of, value_of

CHOOSING = frozenset(
    f"relax.{name}" for name in "reshape permute_dims strided_slice squeeze expand_dims nn.max_pool2d".split()
)
"""Operators of one tensor whose result has no other values than it."""

_RANGES = {"uint8": 0, "int8": -128}
"""The least number of each type."""

Values = Mapping[relax.Var, ir.Expr]
"""What each variable is bound to."""


@dataclass(frozen=True)
class Bytes:
    """An operand that is a variable less a zero point.

    Attributes:
        base: the variable, of float32; its values are whole numbers from `least` to 255 more.
        zero: the zero point as far as it is constant.
        computed: what else the zero point has, a scalar of float32; None if it is constant.
    """

    base: relax.Var
    least: int
    zero: int
    computed: relax.Var | None = None


def bytes_of(operand: ir.Expr, values: Values) -> Bytes | None:
    """Return the bytes behind an operand of float32, or None if it is not known to consist of any."""
    if not isinstance(operand, relax.Var):
        return None
    call: Any = values.get(operand)
    operator = operator_of(call)
    if operator == "relax.subtract" and (inner := bytes_of(call.args[0], values)) is not None:
        if (zero := _whole_scalar(call.args[1])) is not None:
            return replace(inner, zero=inner.zero + zero)
        if inner.computed is None and set(extents(call.args[1])) <= {1} and _is_whole(call.args[1], values):
            return replace(inner, computed=call.args[1])
    least = _least(operand, values)
    return None if least is None else Bytes(operand, least, 0)


def is_byte(operand: ir.Expr, dtype: str, values: Values) -> bool:
    """Whether a variable of float32 consists of whole numbers that a type of 8 bits holds."""
    if dtype not in _RANGES or not isinstance(operand, relax.Var) or str(operand.ty.dtype) != "float32":
        return False
    return _least(operand, values) == _RANGES[dtype]


def _least(operand: relax.Var, values: Values) -> int | None:
    """Return the least value of whole numbers that are no more than 255 apart; None if this is not known."""
    call: Any = values.get(operand)
    operator = operator_of(call)
    if operator == "relax.astype":
        return _RANGES.get(str(call.args[0].ty.dtype))
    if operator in CHOOSING and isinstance(call.args[0], relax.Var):
        return _least(call.args[0], values)
    if operator == "relax.subtract" and (zero := _whole_scalar(call.args[1])) is not None:
        inner = _least(call.args[0], values)
        return None if inner is None else inner - zero
    if operator != "relax.clip":
        return None
    low, high = (float(bound.value) for bound in call.args[1:])
    is_byte = low.is_integer() and high <= low + 255
    return int(low) if is_byte and _is_whole(call.args[0], values) else None


def _is_whole(operand: ir.Expr, values: Values) -> bool:
    """Whether an expression consists of whole numbers."""
    if isinstance(operand, ir.GenericConst):
        value = value_of(operand)
        return value is not None and bool((value == np.round(value)).all())
    call: Any = values.get(operand) if isinstance(operand, relax.Var) else None
    operator = operator_of(call)
    if operator == "relax.reshape":
        return _is_whole(call.args[0], values)
    if operator in ("relax.add", "relax.subtract"):
        return all(_is_whole(each, values) for each in call.args)
    return operator == "relax.round" or (operator == "relax.astype" and "int" in str(call.args[0].ty.dtype))


def _whole_scalar(operand: ir.Expr) -> int | None:
    """Return a constant of one whole number; None for all else."""
    value = value_of(operand)
    return int(value.item()) if value is not None and value.size == 1 and float(value.item()).is_integer() else None
