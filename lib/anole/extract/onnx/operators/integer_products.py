"""Products of small whole numbers in float32, whose sums are exact, so that they have the templates of other products.

Such a product has float32 operands and a result of type int32. This keeps passes from merging scales into its weights,
and tells that it must be computed as it is, see `anole.task.Conv2d.exact`. Targets that multiply bytes compute it so,
see `anole.extract.passes.low_precision`; for others, `anole.extract.passes.exact_sums` keeps its sums exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relax

from anole.extract.onnx.operators.call import Call, along, const, dtype_of, shape_of
from anole.extract.onnx.operators.convolution import Window, convolve, groups_of
from anole.extract.passes.exact_sums import Ranges, exact_parts
from anole.ir.mutators import bound, bound_call, operator_of

_Values = NDArray[Any]


@dataclass(frozen=True)
class Factor:
    """An operand of 8 bits less its zero points.

    Attributes:
        numbers: the whole numbers, in float32.
        ranges: the least and greatest of them, for the least and for the greatest zero point.
        values: the numbers where they are constant.
    """

    numbers: relax.Expr
    ranges: Ranges
    values: _Values | None


def constant_factor(values: _Values) -> Factor:
    """Return constant numbers less their zero points."""
    return Factor(const(values, "float32"), ((int(values.min()), int(values.max())),), values)


def factor_of(call: Call, data: relax.Expr, zero: _Values) -> Factor:
    """Return numbers of 8 bits less constant zero points, which broadcast to them."""
    if isinstance(data, ir.GenericConst):
        return constant_factor(data.value.numpy().astype(np.int32) - zero.astype(np.int32))
    info, numbers = np.iinfo(dtype_of(data)), as_integral_float(call, data)
    if zero.any():
        numbers = call.emit(relax.op.subtract(numbers, const(zero, "float32")))
    ends = (int(zero.min()), int(zero.max()))
    return Factor(numbers, tuple((int(info.min) - end, int(info.max) - end) for end in ends), None)


def factor(call: Call, index: int, zero_index: int, axis: int) -> Factor:
    """Return an input less its zero points.

    The zero points, another input, are one number, or one for each index along an axis.
    """
    data, (values, zeros) = call.input(index), (call.constant(each) for each in (index, zero_index))
    has_zero = call.has(zero_index)
    shape = _zero_shape(call, index, zero_index, axis) if has_zero else ()
    if values is not None and (zeros is not None or not has_zero):
        point = np.zeros((), np.int32) if zeros is None else zeros.astype(np.int32).reshape(shape)
        return constant_factor(values.astype(np.int32) - point)
    info = np.iinfo(dtype_of(data))
    if not has_zero:
        ends: tuple[int, ...] = (0,)
    elif zeros is not None:
        ends = (int(zeros.min()), int(zeros.max()))
    else:
        ends = (int(info.min), int(info.max))
    numbers = as_integral_float(call, data)
    if has_zero and ends != (0, 0):
        zero = relax.op.reshape(as_integral_float(call, call.input(zero_index)), shape)
        numbers = call.emit(relax.op.subtract(numbers, zero))
    return Factor(numbers, tuple((int(info.min) - end, int(info.max) - end) for end in ends), None)


def as_integral_float(call: Call, value: relax.Expr) -> relax.Expr:
    """Return whole numbers in float32; what was rounded in that type and then converted is taken as it was rounded."""
    made = bound_call(call.builder, value, "relax.astype")
    if made is not None and dtype_of(made.args[0]) == "float32" and _is_rounded(call, made.args[0]):
        return made.args[0]
    return call.cast(value, "float32")


def _is_rounded(call: Call, value: relax.Expr) -> bool:
    """Whether an expression is whole in any case, and clipped at most to whole numbers."""
    made: Any = bound(call.builder, value)
    operator = operator_of(made)
    if operator == "relax.add":
        return all(_is_rounded(call, operand) for operand in made.args)
    if operator == "relax.clip":
        data, *bounds = made.args
        return _is_rounded(call, data) and all(float(bound.value).is_integer() for bound in bounds)
    return operator == "relax.round" or (operator == "relax.astype" and "int" in dtype_of(made.args[0]))


def _zero_shape(call: Call, index: int, zero_index: int, axis: int) -> list[int]:
    """Return the shape in which an input's zero points broadcast to it."""
    own, shape = call.shape(zero_index), call.shape(index)
    if own in ((), (1,)):
        return []
    if len(own) != 1:
        raise call.refuse(f"found zero points of shape {list(own)} for data of shape {list(shape)}")
    if own[0] != shape[axis]:
        raise call.refuse(f"found {own[0]} zero points for {shape[axis]} indices")
    return along(axis, len(shape), own[0])


def integer_conv(call: Call, data: Factor, weight: Factor) -> relax.Expr:
    """Return the convolution of an operator with the attributes of Conv, of type int32."""
    values, groups = weight.values, groups_of(call, shape_of(data.numbers), shape_of(weight.numbers))
    rank = len(shape_of(data.numbers)) - 2
    parts = None
    if values is not None and rank in _CONVOLUTIONS:
        outputs, channels = values.shape[:2]
        parts = exact_parts(data.ranges, values.reshape(outputs, channels, -1).transpose(1, 2, 0))
    if values is None or parts is None or (groups > 1 and len(parts) > 1):
        return convolve(call, *(call.cast(each.numbers, "int32") for each in (data, weight)))
    window = Window.of(call, values.shape[2:], shape_of(data.numbers)[2:])
    return call.emit(
        _CONVOLUTIONS[rank](
            data.numbers,
            weight.numbers,
            strides=window.strides,
            padding=(*window.before, *window.after),
            dilation=window.dilations,
            groups=groups,
            out_dtype="int32",
        )
    )


_CONVOLUTIONS: dict[int, Any] = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
"""By the number of the image's axes."""


def integer_matmul(call: Call, left: Factor, right: Factor) -> relax.Expr:
    """Return the matrix product of two operands, of type int32."""
    return call.emit(relax.op.matmul(left.numbers, right.numbers, out_dtype="int32"))
