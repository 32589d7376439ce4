"""Integer convolutions and matrix products with exact float32 sums, which share the templates of float products.

Such a product has float32 operands and an int32 result. This keeps passes from merging scales into its weights, and
marks the product as exact, see `anole.task.Conv2d.exact`. Targets with 8-bit products use them, see
`anole.extract.passes.low_precision`; for others, `anole.extract.passes.exact_sums` keeps the sums exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax

from anole.extract.onnx.operators.call import Call, along, const, dtype_of, shape_of
from anole.extract.onnx.operators.convolution import Window, check_groups, convolve
from anole.extract.passes.exact_sums import Ranges, exact_parts
from anole.ir.mutators import operator_of, resolve, resolve_call

_Values = NDArray[Any]


@dataclass(frozen=True)
class Factor:
    """An 8-bit operand minus its zero points.

    Attributes:
        integers: the integers, stored as float32.
        ranges: the minimum and maximum of the integers, for the smallest and for the largest zero point.
        values: the integers, if they are constant.
    """

    integers: relax.Expr
    ranges: Ranges
    values: _Values | None


def constant_factor(values: _Values) -> Factor:
    """Return constant integers, already centered, as an operand."""
    return Factor(const(values, "float32"), ((int(values.min()), int(values.max())),), values)


def factor_of(call: Call, data: relax.Expr, zero: _Values) -> Factor:
    """Subtract constant zero points, which broadcast to the data, from 8-bit integers."""
    if isinstance(data, ir.GenericConst):
        return constant_factor(data.value.numpy().astype(np.int32) - zero.astype(np.int32))
    info, integers = np.iinfo(dtype_of(data)), as_integral_float(call, data)
    if zero.any():
        integers = call.emit(relax.op.subtract(integers, const(zero, "float32")))
    ends = (int(zero.min()), int(zero.max()))
    return Factor(integers, tuple((int(info.min) - end, int(info.max) - end) for end in ends), None)


def factor(call: Call, index: int, zero_index: int, axis: int) -> Factor:
    """Subtract an input's zero points, which are another input.

    There is a single zero point, or one per index along an axis.
    """
    data, (values, zero_points) = call.input(index), (call.constant(index_) for index_ in (index, zero_index))
    has_zero = call.has(zero_index)
    shape = _zero_shape(call, index, zero_index, axis) if has_zero else ()
    if values is not None and (zero_points is not None or not has_zero):
        point = np.zeros((), np.int32) if zero_points is None else zero_points.astype(np.int32).reshape(shape)
        return constant_factor(values.astype(np.int32) - point)
    info = np.iinfo(dtype_of(data))
    if not has_zero:
        ends: tuple[int, ...] = (0,)
    elif zero_points is not None:
        ends = (int(zero_points.min()), int(zero_points.max()))
    else:
        ends = (int(info.min), int(info.max))
    integers = as_integral_float(call, data)
    if has_zero and ends != (0, 0):
        zero = relax.op.reshape(as_integral_float(call, call.input(zero_index)), shape)
        integers = call.emit(relax.op.subtract(integers, zero))
    return Factor(integers, tuple((int(info.min) - end, int(info.max) - end) for end in ends), None)


def as_integral_float(call: Call, value: relax.Expr) -> relax.Expr:
    """Return integers as float32; if they were cast from rounded float32 values, return the float32 values."""
    cast = resolve_call(call.builder, value, "relax.astype")
    if cast is not None and dtype_of(cast.args[0]) == "float32" and _is_rounded(call, cast.args[0]):
        return cast.args[0]
    return call.cast(value, "float32")


def _is_rounded(call: Call, value: relax.Expr) -> bool:
    """Whether a float expression is always an integer: rounded or cast, then at most added or clipped to integers."""
    call_: Any = resolve(call.builder, value)
    operator = operator_of(call_)
    if operator == "relax.add":
        return all(_is_rounded(call, operand) for operand in call_.args)
    if operator == "relax.clip":
        data, *bounds = call_.args
        return _is_rounded(call, data) and all(float(bound.value).is_integer() for bound in bounds)
    return operator == "relax.round" or (operator == "relax.astype" and "int" in dtype_of(call_.args[0]))


def _zero_shape(call: Call, index: int, zero_index: int, axis: int) -> list[int]:
    """Return the shape that broadcasts an input's zero points to it."""
    zero_shape, shape = call.shape(zero_index), call.shape(index)
    if zero_shape in ((), (1,)):
        return []
    if len(zero_shape) != 1:
        raise call.refuse(f"found zero points of shape {list(zero_shape)} for data of shape {list(shape)}")
    if zero_shape[0] != shape[axis]:
        raise call.refuse(f"found {zero_shape[0]} zero points for {shape[axis]} indices")
    return along(axis, len(shape), zero_shape[0])


def integer_conv(call: Call, data: Factor, weight: Factor) -> relax.Expr:
    """Compute an int32 convolution with the attributes of Conv."""
    values, groups = weight.values, check_groups(call, shape_of(data.integers), shape_of(weight.integers))
    rank = len(shape_of(data.integers)) - 2
    parts = None
    if values is not None and rank in _CONVOLUTIONS:
        outputs, channels = values.shape[:2]
        parts = exact_parts(data.ranges, values.reshape(outputs, channels, -1).transpose(1, 2, 0))
    if values is None or parts is None or (groups > 1 and len(parts) > 1):
        return convolve(call, *(call.cast(operand.integers, "int32") for operand in (data, weight)))
    window = Window.of(call, values.shape[2:], shape_of(data.integers)[2:])
    return call.emit(
        _CONVOLUTIONS[rank](
            data.integers,
            weight.integers,
            strides=window.strides,
            padding=(*window.before, *window.after),
            dilation=window.dilations,
            groups=groups,
            out_dtype="int32",
        )
    )


_CONVOLUTIONS: dict[int, Any] = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
"""Convolutions by the number of spatial axes."""


def integer_matmul(call: Call, left: Factor, right: Factor) -> relax.Expr:
    """Compute an int32 matrix product."""
    return call.emit(relax.op.matmul(left.integers, right.integers, out_dtype="int32"))
