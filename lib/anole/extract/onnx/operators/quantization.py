"""Converters for quantized operators: exact integer products, followed by floating-point scales.

If only the weights are quantized, products are computed in floating point; the weights stay stored as integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from anole.extract.onnx.operators.call import Call, Converter, along, const, dtype_of, shape_of
from anole.extract.onnx.operators.integer_products import (
    Factor,
    as_integral_float,
    constant_factor,
    factor,
    factor_of,
    integer_conv,
    integer_matmul,
)
from anole.extract.passes.value_ranges import VALUE_PRESERVING
from anole.extract.passes.weight_only import weight_only
from anole.ir.mutators import operator_of, resolve, resolve_call, resolve_value, with_attrs
from anole.targets.shared.weight_only import StoredWeights

_INTEGER_DTYPES = ("uint8", "int8", "uint16", "int16")

_DEQUANTIZING_OPS = ("relax.astype", "relax.subtract")
"""Operators that produce the integers that `DequantizeLinear` scales, but never an integer product."""


def quantize(call: Call) -> relax.Expr:
    """Convert `QuantizeLinear`."""
    data = call.input(0)
    dtype = dtype_of(call.input(2)) if call.has(2) else call.dtype("output_dtype", "uint8")
    if call.attributes.get("precision", 0):
        raise call.refuse("the attribute precision is not supported")
    scale = _broadcast_parameter(call, call.input(1), data)
    zero = _broadcast_parameter(call, call.input(2), data) if call.has(2) else None
    if (requantized := _bypass(call, data, scale, zero, dtype)) is not None:
        return requantized
    if (rescaled := _rescale_product(call, data, scale)) is not None:
        return _round_and_clamp(call, rescaled, None, zero, dtype)
    return _round_and_clamp(call, data, call.cast(scale, dtype_of(data)), zero, dtype)


def _bypass(call: Call, data: relax.Expr, scale: relax.Expr, zero: relax.Expr | None, dtype: str) -> relax.Expr | None:
    """Requantize data that was dequantized by the same scale and then only moved or selected; else return None."""
    moves: list[Any] = []
    while operator_of(move_ := resolve(call.builder, data)) in VALUE_PRESERVING:
        moves.append(move_)
        data = moves[-1].args[0]
    dequantized = _split_dequantized(call, data) if moves else None
    if dequantized is None:
        return None
    integers, old_zero, old_scale = dequantized
    values = _fold_constant(call, scale), np.zeros(1) if zero is None else _fold_constant(call, zero)
    is_same = all(
        new is not None and new.size == old.size == 1 and new.item() == old.item()
        for new, old in zip(values, (old_scale, old_zero), strict=True)
    )
    if not is_same or dtype_of(integers) != dtype:
        return None
    result = as_integral_float(call, integers)
    for move in reversed(moves):
        result = call.emit(with_attrs(move, [result, *move.args[1:]]))
    return call.cast(result, dtype)


def _rescale_product(call: Call, data: relax.Expr, scale: relax.Expr) -> relax.Expr | None:
    """Divide a scaled integer product by a scale, with one combined factor; return None for all other data.

    `QLinearConv` and `QLinearMatMul` define the result in this way.
    """
    relu = resolve_call(call.builder, data, "relax.nn.relu")
    scaled_product = _split_scaled(call, data if relu is None else relu.args[0])
    divisor = _fold_constant(call, scale)
    if scaled_product is None or divisor is None or divisor.size != 1 or dtype_of(scaled_product[0]) != "int32":
        return None
    if operator_of(resolve(call.builder, scaled_product[0])) in _DEQUANTIZING_OPS:
        return None
    factor = scaled_product[1] / divisor.astype(np.float32).reshape(())
    product = call.emit(relax.op.multiply(call.cast(scaled_product[0], "float32"), const(factor, "float32")))
    return product if relu is None else call.emit(relax.op.nn.relu(product))


def _round_and_clamp(
    call: Call, data: relax.Expr, scale: relax.Expr | None, zero: relax.Expr | None, dtype: str
) -> relax.Expr:
    """Quantize: divide by a scale, if any, round half to even, add the zero point, and clamp."""
    if dtype not in _INTEGER_DTYPES:
        raise call.refuse(f"found {dtype}; allowed: {', '.join(_INTEGER_DTYPES)}")
    divided = call.widen(data if scale is None else call.emit(relax.op.divide(data, scale)))
    rounded = call.emit(relax.op.round(divided))
    if (zero := _zero_point(call, zero, dtype_of(divided))) is not None:
        rounded = call.emit(relax.op.add(rounded, zero))
    info = np.iinfo(dtype)
    return call.cast(call.emit(relax.op.clip(rounded, int(info.min), int(info.max))), dtype)


def _zero_point(call: Call, zero: relax.Expr | None, dtype: str) -> relax.Expr | None:
    """Cast a zero point; return a literal for the kernel if it is a single constant, and None if it is 0 or omitted."""
    value = None if zero is None else _fold_constant(call, zero)
    if zero is None or (value is not None and not value.any()):
        return None
    return const(value.item(), dtype) if value is not None and value.size == 1 else call.cast(zero, dtype)


def dequantize(call: Call) -> relax.Expr:
    """Convert `DequantizeLinear`."""
    data = call.input(0)
    if dtype_of(data) not in (*_INTEGER_DTYPES, "int32"):
        raise call.refuse(f"found {dtype_of(data)}; allowed: {', '.join(_INTEGER_DTYPES)}, int32")
    scale = _broadcast_parameter(call, call.input(1), data)
    integers = call.cast(data, "int32")
    zero = _zero_point(call, _broadcast_parameter(call, call.input(2), data) if call.has(2) else None, "int32")
    if zero is not None:
        integers = call.emit(relax.op.subtract(integers, zero))
    product = call.emit(relax.op.multiply(call.cast(integers, "float32"), call.cast(scale, "float32")))
    return call.cast(product, call.dtype("output_dtype", dtype_of(call.input(1))))


def _broadcast_parameter(call: Call, parameter: relax.Expr, data: relax.Expr) -> relax.Expr:
    """Broadcast a scale or zero point to the data; there is one, or one per index or block along an axis."""
    param_shape, shape = shape_of(parameter), shape_of(data)
    if param_shape in ((), (1,)):
        # TVM would multiply by the reciprocal of a scalar constant; its rounding error may change the quantized value.
        return call.emit(relax.op.reshape(parameter, [1] * len(shape)))
    axis = call.normal_axis(call.integer("axis", 1), len(shape))
    if param_shape == shape[axis : axis + 1]:
        return call.emit(relax.op.reshape(parameter, along(axis, len(shape), param_shape[0])))
    size = call.integer("block_size", 0)
    if size and len(param_shape) == len(shape) and -(-shape[axis] // size) == param_shape[axis]:
        blocks = np.arange(shape[axis]) // size
        return call.gather(parameter, blocks, axis)
    raise call.refuse(f"found scales or zero points of shape {list(param_shape)} for data of shape {list(shape)}")


def dynamic_quantize(call: Call, data: relax.Expr) -> list[relax.Expr]:
    """Quantize data to uint8 with an exact 0; return it with its scale and zero point."""
    # The number of levels is a kernel parameter, since TVM would multiply by the reciprocal of a constant.
    parameters = call.kernel(_parameters, relax.op.min(data), relax.op.max(data), const(255, "float32"))
    scale, divisor, point = call.fields(parameters, 3)
    return [_round_and_clamp(call, data, divisor, point, "uint8"), scale, point]


def _parameters(minimum: te.Tensor, maximum: te.Tensor, levels: te.Tensor) -> list[te.Tensor]:
    """Return the scale for data with the given minimum and maximum, the divisor, and the zero point."""
    zero, one = tirx.const(0, "float32"), tirx.const(1, "float32")
    low, high = tirx.min(minimum(), zero), tirx.max(maximum(), zero)
    scale = te.compute((), lambda: (high - low) / levels(), "scale")
    # If all data is 0, the scale is 0.
    divisor = te.compute((), lambda: tirx.Select(scale() == zero, one, scale()), "divisor")
    point = te.compute((), lambda: tirx.min(tirx.nearbyint(-low / divisor()), levels()).astype("uint8"), "point")
    return [scale, divisor, point]


def _qlinear_conv(call: Call) -> relax.Expr:
    product = integer_conv(call, factor(call, 0, 2, 1), factor(call, 3, 5, 0))
    if call.has(8):
        bias = relax.op.reshape(call.input(8), [1, *call.shape(8), *[1] * (len(call.shape(0)) - 2)])
        product = call.emit(relax.op.add(product, bias))
    return _requantize(call, product, 1)


def _requantize(call: Call, product: relax.Expr, axis: int) -> relax.Expr:
    """Quantize an int32 product with the result's scale and zero point.

    The right operand may have several scales along an axis of the product.
    """
    emit, rank = call.emit, len(shape_of(product))
    left, right, result = (call.cast(call.input(index), "float32") for index in (1, 4, 6))
    scales = []
    for scale, axis_ in ((left, -2), (right, axis), (result, axis)):
        dims = shape_of(scale)
        is_vector = dims not in ((), (1,))
        if is_vector and (
            len(dims) != 1 or shape_of(product)[axis_] != dims[0] or (call.operator == "QLinearConv" and scale is left)
        ):
            raise call.refuse(f"found scales of shape {list(dims)} for a result of shape {list(shape_of(product))}")
        scales.append(emit(relax.op.reshape(scale, along(axis_, rank, dims[0]) if is_vector else [])))
    factor = emit(relax.op.divide(relax.op.multiply(scales[0], scales[1]), scales[2]))
    scaled = emit(relax.op.multiply(call.cast(product, "float32"), factor))
    zero = call.input(7)
    if shape_of(zero) not in ((), (1,)):
        raise call.refuse("only a single zero point of the result is supported")
    return _round_and_clamp(call, scaled, None, emit(relax.op.reshape(zero, [])), dtype_of(zero))


@dataclass(frozen=True)
class _DequantizedOperand:
    """An operand that was dequantized by constants: the integer input of `DequantizeLinear`, and its scale.

    Attributes:
        scale: a scalar, or one value per index along an axis.
    """

    integers: Factor
    scale: NDArray[Any]


def _dequantized_operand(call: Call, index: int) -> _DequantizedOperand | None:
    """Return the 8-bit operand that an input was dequantized from, or None for all other inputs."""
    parts = _split_dequantized(call, call.input(index))
    return None if parts is None else _DequantizedOperand(factor_of(call, *parts[:2]), parts[2])


def _split_dequantized(call: Call, data: relax.Expr) -> tuple[relax.Expr, NDArray[Any], NDArray[Any]] | None:
    """Return the 8-bit data, zero point and scale of data that was dequantized by constants, or None for other data."""
    scaled = _split_scaled(call, data)
    if scaled is None:
        return None
    (integers, scale), zero = scaled, np.zeros((), np.int32)
    if (centered := resolve_call(call.builder, integers, "relax.subtract")) is not None:
        if (point := _fold_constant(call, centered.args[1])) is None:
            return None
        integers, zero = centered.args[0], point
    if (widened := resolve_call(call.builder, integers, "relax.astype")) is not None:
        integers = widened.args[0]
    return (integers, zero, scale) if dtype_of(integers) in ("uint8", "int8") else None


def _split_scaled(call: Call, data: relax.Expr) -> tuple[relax.Expr, NDArray[Any]] | None:
    """Return the operands x and c of ``astype(x) * c`` with a constant c, or None for all other data."""
    product: Any = resolve_call(call.builder, data, "relax.multiply")
    cast: Any = None if product is None else resolve_call(call.builder, product.args[0], "relax.astype")
    scale = None if cast is None else _fold_constant(call, product.args[1])
    return None if scale is None else (cast.args[0], scale)


def _fold_constant(call: Call, expr: relax.Expr) -> NDArray[Any] | None:
    """Return the value of a constant that may be reshaped, cast or gathered, or None for other expressions."""
    if (value := resolve_value(call.builder, expr)) is not None:
        return value
    call_: Any = resolve(call.builder, expr)
    if operator_of(call_) not in ("relax.reshape", "relax.astype", "relax.take"):
        return None
    if operator_of(call_) == "relax.take":
        values, indices = (resolve_value(call.builder, operand) for operand in call_.args)
        return None if values is None or indices is None else np.take(values, indices, call_.attrs.axis)
    inner = _fold_constant(call, call_.args[0])
    return None if inner is None else inner.reshape(shape_of(expr)).astype(dtype_of(expr))


def _operands(call: Call, axis: int, may_be_computed: bool = False) -> tuple[Factor, Factor, NDArray[Any]] | None:
    """Return the data and weight of a product before dequantization, and the scale of the product.

    The data has a single scale; the weight, constant unless `may_be_computed`, may have one scale per index along an
    axis, and then the product has as many scales.
    """
    data, weight = _dequantized_operand(call, 0), _dequantized_operand(call, 1)
    if data is None or weight is None or data.scale.size != 1:
        return None
    if weight.integers.values is None and not may_be_computed:
        return None
    weight_scale = weight.scale
    if weight_scale.size != 1 and weight_scale.size != weight_scale.shape[axis]:
        return None
    return data.integers, weight.integers, (data.scale.reshape(()) * weight_scale.reshape(-1)).astype(np.float32)


def _conv(call: Call) -> relax.Expr:
    """Convolve integers and scale the result, if both operands were dequantized; otherwise use TVM's converter."""
    operands = _operands(call, 0)
    if operands is None:
        return call.by_tvm()
    data, weight, scale = operands
    rank = len(shape_of(data.integers))
    return _scale_product(call, integer_conv(call, data, weight), scale.reshape(along(1, rank)), along(1, rank))


def gemm(call: Call) -> relax.Expr:
    """Multiply integers and scale the result, if both operands were dequantized."""
    operands = _operands(call, 0 if call.flag("transB") else -1)
    is_plain = not call.flag("transA") and {call.attributes.get(name, 1.0) for name in ("alpha", "beta")} == {1.0}
    if not is_plain:
        return call.by_tvm()
    if operands is None:
        return _multiply_stored_weight(call, call.flag("transB"))
    data, weight, scale = operands
    if call.flag("transB") and weight.values is not None:
        weight = constant_factor(weight.values.T)
    return _scale_product(call, integer_matmul(call, data, weight), scale, None)


def _matmul(call: Call) -> relax.Expr:
    operands = _operands(call, -1, may_be_computed=True)
    if operands is None or len(call.shape(1)) < 2:
        return _multiply_stored_weight(call, False)
    data, weight, scale = operands
    return _scale_product(call, integer_matmul(call, data, weight), scale, None)


def _multiply_stored_weight(call: Call, is_transposed: bool) -> relax.Expr:
    """Multiply in float32 by the stored low-precision weight, if it was dequantized; otherwise use TVM's converter."""
    weight, types = _dequantized_operand(call, 1), {dtype_of(call.input(0)), dtype_of(call.input(1))}
    centered = None if weight is None else weight.integers.values
    if weight is None or centered is None or centered.ndim != 2 or types != {"float32"}:
        return call.by_tvm()
    scales = np.broadcast_to(weight.scale, centered.shape)
    if is_transposed:
        centered, scales = centered.T, scales.T
    # The largest block size for which the scales within each block are equal.
    block = int(np.gcd.reduce([len(scales), *(1 + np.flatnonzero((scales[1:] != scales[:-1]).any(1)))]))
    stored = StoredWeights(centered.astype(np.int16), scales[::block].astype(np.float32))
    if (scheme := stored.scheme) is None:
        return call.by_tvm()
    product = call.emit(weight_only(call.input(0), stored, scheme))
    return relax.op.add(product, call.input(2)) if call.has(2) else product


def _scale_product(call: Call, product: relax.Expr, scale: NDArray[Any], bias_shape: list[int] | None) -> relax.Expr:
    """Scale an integer product in float32, and add the operator's bias, if any.

    An integer bias in units of the scale is added before scaling.
    """
    bias = None
    if call.has(2):
        bias = call.input(2) if bias_shape is None else call.emit(relax.op.reshape(call.input(2), bias_shape))
        parts = _split_scaled(call, call.input(2))
        if parts is not None and dtype_of(parts[0]) == "int32" and np.allclose(parts[1], scale.reshape(-1), 1e-6, 0):
            integer_bias = parts[0] if bias_shape is None else call.emit(relax.op.reshape(parts[0], bias_shape))
            product, bias = call.emit(relax.op.add(product, integer_bias)), None
    result = call.emit(relax.op.multiply(call.cast(product, "float32"), const(scale, "float32")))
    return result if bias is None else relax.op.add(result, bias)


CONVERTERS: dict[str, Converter] = {
    "Conv": _conv,
    "ConvInteger": lambda call: integer_conv(call, factor(call, 0, 2, 1), factor(call, 1, 3, 0)),
    "DequantizeLinear": dequantize,
    "Gemm": gemm,
    "MatMul": _matmul,
    "DynamicQuantizeLinear": lambda call: dynamic_quantize(call, call.input(0)),
    "MatMulInteger": lambda call: integer_matmul(call, factor(call, 0, 2, -2), factor(call, 1, 3, -1)),
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": lambda call: _requantize(
        call, integer_matmul(call, factor(call, 0, 2, -2), factor(call, 3, 5, -1)), -1
    ),
    "QuantizeLinear": quantize,
}
"""Converters by operator type."""
