"""Value range analysis: float32 operands that hold 8-bit integers, and integer inputs that index tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import ir, relax

from anole.ir.mutators import bindings, extents, operator_of, value_of, variables

VALUE_PRESERVING = frozenset(
    f"relax.{name}" for name in "reshape permute_dims strided_slice squeeze expand_dims nn.max_pool2d".split()
)
"""Unary operators whose result contains only values of the operand."""

_MIN_VALUES = {"uint8": 0, "int8": -128}
"""The minimum of each 8-bit dtype."""

COMPARISONS = frozenset(f"relax.{name}" for name in "equal not_equal less less_equal greater greater_equal".split())

Values = Mapping[relax.Var, ir.Expr]
"""The bindings of variables."""


@dataclass(frozen=True)
class Operand8Bit:
    """An 8-bit operand in float32: a variable minus a zero point.

    Attributes:
        base: the float32 variable; its values are integers from `least` to `least` + 255.
        zero: the constant part of the zero point.
        computed: the computed part of the zero point, a float32 scalar, or None.
    """

    base: relax.Var
    least: int
    zero: int
    computed: relax.Var | None = None


def table_sizes(main: relax.Function) -> dict[relax.Var, int]:
    """Return the size of the smallest table that each integer input indexes, if it is used for nothing else.

    Comparisons are allowed, and so is ONNX's count from the end: ``where(i < 0, i + size, i)``.
    """
    values = {binding.var: binding.value for binding in bindings(main)}
    from_the_end = {var: call.args[1] for var, call in values.items() if _counts_from_the_end(call, values)}
    source_of: dict[relax.Var, relax.Var] = {param: param for param in main.params if "int" in str(param.ty.dtype)}
    sizes: dict[relax.Var, int] = {}
    others: set[relax.Var] = set()
    for var, call in values.items():
        operator, read = operator_of(call), {source_of[each] for each in variables(call) if each in source_of}
        if operator in VALUE_PRESERVING or (operator == "relax.astype" and "int" in str(var.ty.dtype)):
            kept, others = call.args[0], others | read - {source_of.get(call.args[0])}
            source_of |= {var: source_of[kept]} if kept in source_of else {}
        elif var in from_the_end and call.args[2] in source_of:
            source_of[var] = source_of[call.args[2]]
        elif operator == "relax.take" and call.args[1] in source_of and call.args[0] not in source_of:
            source, size = source_of[call.args[1]], extents(call.args[0])[call.attrs.axis or 0]
            sizes[source] = min(size, sizes.get(source, size), np.iinfo(str(source.ty.dtype)).max)
        elif operator not in COMPARISONS and var not in from_the_end.values():
            others |= read
    return {source: size for source, size in sizes.items() if source not in others}


def _counts_from_the_end(call: Any, values: Values) -> bool:
    if operator_of(call) != "relax.where":
        return False
    condition, shifted = (values.get(operand) for operand in call.args[:2])
    if condition is None or shifted is None or call.args[2] not in {*variables(condition)} & {*variables(shifted)}:
        return False
    return (operator_of(condition), operator_of(shifted)) == ("relax.less", "relax.add")


def as_8bit_operand(operand: ir.Expr, values: Values) -> Operand8Bit | None:
    """Return a float32 operand's 8-bit variable and zero point, or None if it is not known to hold 8-bit integers."""
    if not isinstance(operand, relax.Var):
        return None
    call: Any = values.get(operand)
    operator = operator_of(call)
    if operator == "relax.subtract" and (inner := as_8bit_operand(call.args[0], values)) is not None:
        if (zero := _integer_scalar(call.args[1])) is not None:
            return replace(inner, zero=inner.zero + zero)
        if inner.computed is None and set(extents(call.args[1])) <= {1} and _is_integral(call.args[1], values):
            return replace(inner, computed=call.args[1])
    least = _minimum(operand, values)
    return None if least is None else Operand8Bit(operand, least, 0)


def is_8bit(operand: ir.Expr, dtype: str, values: Values) -> bool:
    """Whether a float32 variable holds only integers in the range of an 8-bit dtype."""
    if dtype not in _MIN_VALUES or not isinstance(operand, relax.Var) or str(operand.ty.dtype) != "float32":
        return False
    return _minimum(operand, values) == _MIN_VALUES[dtype]


def _minimum(operand: relax.Var, values: Values) -> int | None:
    """Return the minimum of a variable that holds integers with a range of at most 255, or None if unknown."""
    call: Any = values.get(operand)
    operator = operator_of(call)
    if operator == "relax.astype":
        return _MIN_VALUES.get(str(call.args[0].ty.dtype))
    if operator in VALUE_PRESERVING and isinstance(call.args[0], relax.Var):
        return _minimum(call.args[0], values)
    if operator == "relax.subtract" and (zero := _integer_scalar(call.args[1])) is not None:
        inner = _minimum(call.args[0], values)
        return None if inner is None else inner - zero
    if operator != "relax.clip":
        return None
    low, high = (float(bound.value) for bound in call.args[1:])
    fits = low.is_integer() and high <= low + 255
    return int(low) if fits and _is_integral(call.args[0], values) else None


def _is_integral(operand: ir.Expr, values: Values) -> bool:
    """Whether an expression holds only integers."""
    if isinstance(operand, ir.GenericConst):
        value = value_of(operand)
        return value is not None and bool((value == np.round(value)).all())
    call: Any = values.get(operand) if isinstance(operand, relax.Var) else None
    operator = operator_of(call)
    if operator == "relax.reshape":
        return _is_integral(call.args[0], values)
    if operator in ("relax.add", "relax.subtract"):
        return all(_is_integral(operand_, values) for operand_ in call.args)
    return operator == "relax.round" or (operator == "relax.astype" and "int" in str(call.args[0].ty.dtype))


def _integer_scalar(operand: ir.Expr) -> int | None:
    """Return the value of a constant with one integral element, or None for all other operands."""
    value = value_of(operand)
    return int(value.item()) if value is not None and value.size == 1 and float(value.item()).is_integer() else None
