"""Quantised operators, computed exactly: products of integers, and scales in floating-point numbers."""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from anole.extract.onnx.operators.call import Call, Converter
from anole.extract.onnx.operators.kernels import (
    cast,
    const,
    dtype_of,
    kernel,
    normal_axis,
    refuse,
    shape_of,
    taken_along,
)
from anole.extract.onnx.operators.whole_products import convolve_whole, factor, multiply_whole

_INTEGERS = ("uint8", "int8", "uint16", "int16")


def _quantize(call: Call) -> relax.Expr:
    data = call.input(0)
    dtype = dtype_of(call.input(2)) if call.has(2) else _named_type(call, "output_dtype", "uint8")
    if call.attributes.get("precision", 0):
        raise refuse(call, "the attribute precision is not supported")
    scale = _spread(call, call.input(1), data)
    zero = _spread(call, call.input(2), data) if call.has(2) else None
    return _saturated(call, data, cast(call, scale, dtype_of(data)), zero, dtype)


def _saturated(
    call: Call, data: relax.Expr, scale: relax.Expr | None, zero: relax.Expr | None, dtype: str
) -> relax.Expr:
    """Returns numbers divided by a scale, if any, rounded to the nearest even number, shifted and clipped."""
    if dtype not in _INTEGERS:
        raise refuse(call, f"found {dtype}; allowed: {', '.join(_INTEGERS)}")
    emit = call.builder.emit
    wide = dtype_of(data) if dtype_of(data) == "float64" else "float32"
    divided = cast(call, data if scale is None else emit(relax.op.divide(data, scale)), wide)
    rounded = emit(relax.op.round(divided))
    if zero is not None:
        rounded = emit(relax.op.add(rounded, cast(call, zero, wide)))
    info = np.iinfo(dtype)
    return cast(call, emit(relax.op.clip(rounded, int(info.min), int(info.max))), dtype)


def _dequantize(call: Call) -> relax.Expr:
    data, emit = call.input(0), call.builder.emit
    if dtype_of(data) not in (*_INTEGERS, "int32"):
        raise refuse(call, f"found {dtype_of(data)}; allowed: {', '.join(_INTEGERS)}, int32")
    scale = _spread(call, call.input(1), data)
    found = cast(call, data, "int32")
    if call.has(2):
        found = emit(relax.op.subtract(found, cast(call, _spread(call, call.input(2), data), "int32")))
    product = emit(relax.op.multiply(cast(call, found, "float32"), cast(call, scale, "float32")))
    return cast(call, product, _named_type(call, "output_dtype", dtype_of(call.input(1))))


def _named_type(call: Call, attribute: str, default: str) -> str:
    from onnx.helper import tensor_dtype_to_np_dtype

    number = int(call.attributes.get(attribute, 0))
    return str(np.dtype(tensor_dtype_to_np_dtype(number)).name) if number else default


def _spread(call: Call, parameter: relax.Expr, data: relax.Expr) -> relax.Expr:
    """Returns a scale or zero point, which is one number, or one for each index or block along an axis, for all data.

    Raises:
        Unsupported: its shape does not fit.
    """
    own, shape = shape_of(parameter), shape_of(data)
    if own in ((), (1,)):
        # TVM multiplies by the reciprocal of a constant without axes, whose last bit may decide how data is rounded.
        return call.builder.emit(relax.op.reshape(parameter, [1] * len(shape)))
    axis = normal_axis(call, int(call.attributes.get("axis", 1)), len(shape))
    if own == shape[axis : axis + 1]:
        return call.builder.emit(relax.op.reshape(parameter, [1] * axis + [*own] + [1] * (len(shape) - axis - 1)))
    size = int(call.attributes.get("block_size", 0))
    if size and len(own) == len(shape) and -(-shape[axis] // size) == own[axis]:
        places = np.arange(shape[axis]) // size
        return taken_along(call, parameter, places, axis)
    raise refuse(call, f"found scales or zero points of shape {list(own)} for data of shape {list(shape)}")


def _dynamic_quantize(call: Call) -> list[relax.Expr]:
    return dynamic_quantize(call, call.input(0))


def dynamic_quantize(call: Call, data: relax.Expr) -> list[relax.Expr]:
    """Returns data quantised to uint8, so that 0 is exact, with their scale and zero point."""
    emit = call.builder.emit
    # A parameter of the kernel, since TVM would multiply by the reciprocal of a constant.
    ends = emit(relax.op.min(data)), emit(relax.op.max(data)), const(255, "float32")
    found = kernel(call, _parameters, *ends)
    scale, divisor, point = (emit(relax.TupleGetItem(found, index)) for index in range(3))
    return [_saturated(call, data, divisor, point, "uint8"), scale, point]


def _parameters(least: te.Tensor, most: te.Tensor, levels: te.Tensor) -> list[te.Tensor]:
    """Returns the scale of data between two numbers, what the data is divided by, and its zero point."""
    zero, one = tirx.const(0, "float32"), tirx.const(1, "float32")
    low, high = tirx.min(least(), zero), tirx.max(most(), zero)
    scale = te.compute((), lambda: (high - low) / levels(), "scale")
    # Data that are all 0 would divide by 0.
    divisor = te.compute((), lambda: tirx.Select(scale() == zero, one, scale()), "divisor")
    point = te.compute((), lambda: tirx.min(tirx.nearbyint(-low / divisor()), levels()).astype("uint8"), "point")
    return [scale, divisor, point]


def _conv_integer(call: Call) -> relax.Expr:
    return convolve_whole(call, factor(call, 0, 2, 1), factor(call, 1, 3, 0))


def _matmul_integer(call: Call) -> relax.Expr:
    return multiply_whole(call, factor(call, 0, 2, -2), factor(call, 1, 3, -1))


def _qlinear_conv(call: Call) -> relax.Expr:
    rank = len(call.shape(0))
    emit = call.builder.emit
    product = convolve_whole(call, factor(call, 0, 2, 1), factor(call, 3, 5, 0))
    if call.has(8):
        bias = emit(relax.op.reshape(call.input(8), [1, *call.shape(8), *[1] * (rank - 2)]))
        product = emit(relax.op.add(product, bias))
    return _rescaled(call, product, (1, 4, 6, 7), 1)


def _qlinear_matmul(call: Call) -> relax.Expr:
    product = multiply_whole(call, factor(call, 0, 2, -2), factor(call, 3, 5, -1))
    return _rescaled(call, product, (1, 4, 6, 7), -1)


def _rescaled(call: Call, product: relax.Expr, indices: tuple[int, int, int, int], axis: int) -> relax.Expr:
    """Returns a product of integers with the result's scale and zero point.

    Args:
        call: the operator.
        product: the product, of type int32.
        indices: the inputs: both operands' scales, the result's scale, and its zero point.
        axis: the axis of the product along which the right operand may have several scales.
    """
    emit, rank = call.builder.emit, len(shape_of(product))
    left, right, result = (cast(call, call.input(index), "float32") for index in indices[:3])
    scales = []
    for scale, own_axis in ((left, -2), (right, axis), (result, axis)):
        own = shape_of(scale)
        many = own not in ((), (1,))
        if many and (
            len(own) != 1 or shape_of(product)[own_axis] != own[0] or (call.operator == "QLinearConv" and scale is left)
        ):
            raise refuse(call, f"found scales of shape {list(own)} for a result of shape {list(shape_of(product))}")
        extents = [own[0] if i == own_axis % rank else 1 for i in range(rank)] if many else []
        scales.append(emit(relax.op.reshape(scale, extents)))
    factor = emit(relax.op.divide(emit(relax.op.multiply(scales[0], scales[1])), scales[2]))
    scaled = emit(relax.op.multiply(cast(call, product, "float32"), factor))
    zero = call.input(indices[3])
    if shape_of(zero) not in ((), (1,)):
        raise refuse(call, "only one zero point of the result is supported")
    return _saturated(call, scaled, None, emit(relax.op.reshape(zero, [])), dtype_of(zero))


CONVERTERS: dict[str, Converter] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
"""Converters by the operator's type."""
