"""What converters share: kernels of their own, conversions of types, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te

from anole.extract.onnx.operators.call import Call


class Unsupported(Exception):
    """An operator's use that cannot be converted; the message names the operator and what is wrong with it."""


def refuse(call: Call, why: str) -> Unsupported:
    """Returns the error of an operator that cannot be converted."""
    return Unsupported(f"{call.operator}{f' {call.name!r}' if call.name else ''}: {why}")


def kernel(call: Call, compute: Callable[..., te.Tensor], *operands: relax.Expr) -> relax.Expr:
    """Returns the result of a kernel that is defined as a tensor expression.

    Args:
        call: the operator, which names the kernel.
        compute: maps the operands' tensors to the result's tensor, or to several.
        operands: the kernel's operands.
    """
    emit = call.builder.emit
    bound = [operand if isinstance(operand, relax.Var) else emit(operand) for operand in operands]
    return call.builder.emit_te(compute, *bound, primfunc_name_hint=call.operator.lower())


def shape_of(expr: relax.Expr) -> tuple[int, ...]:
    """Returns the shape of an expression; all shapes are fixed."""
    return tuple(int(extent) for extent in expr.ty.shape.values)


def dtype_of(expr: relax.Expr) -> str:
    """Returns the type of an expression's elements."""
    return str(expr.ty.dtype)


def cast(call: Call, expr: relax.Expr, dtype: str) -> relax.Expr:
    """Returns an expression with elements of a type."""
    return expr if dtype_of(expr) == dtype else call.builder.emit(relax.op.astype(expr, dtype))


def const(values: NDArray[Any] | Sequence[float] | float, dtype: str) -> relax.Expr:
    """Returns a constant."""
    return relax.const(np.asarray(values, dtype, order="C"), dtype)


def taken_along(call: Call, data: relax.Expr, places: NDArray[Any], axis: int) -> relax.Expr:
    """Returns the elements at known places along an axis; all of them exist."""
    # TVM's default mode warns of places that might not exist.
    return call.builder.emit(relax.op.take(data, const(places, "int64"), axis, mode="clip"))


def required_constant(call: Call, index: int, name: str) -> NDArray[Any]:
    """Returns the value of an input that decides a shape.

    Raises:
        Unsupported: it is missing or not constant.
    """
    value = call.constant(index)
    if value is None:
        raise refuse(call, f"its input {name} must be constant")
    return value


def axis_of(call: Call, rank: int, default: int) -> int:
    """Returns the attribute ``axis`` as a number from 0.

    Raises:
        Unsupported: there is no such axis.
    """
    return normal_axis(call, int(call.attributes.get("axis", default)), rank)


def normal_axis(call: Call, axis: int, rank: int) -> int:
    """Returns an axis as a number from 0.

    Raises:
        Unsupported: there is no such axis.
    """
    if not -rank <= axis < max(rank, 1):
        raise refuse(call, f"axis: found {axis}; the tensor has {rank} axes")
    return axis % rank if rank else 0


def replaced(indices: Sequence[Any], axis: int, index: Any) -> list[Any]:
    """Returns indices with one along an axis replaced."""
    return [*indices[:axis], index, *indices[axis + 1 :]]
