"""Converters for ONNX Runtime's 8-bit operators: dequantize, compute in float32, and quantize again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tvm import relax

from anole.extract.onnx.operators.call import Call, Converter, const, shape_of
from anole.extract.onnx.operators.quantization import dequantize, gemm, quantize

_Compute = Callable[..., relax.Expr]
"""A function from the call and its dequantized operands to the result."""


def _dequantize_input(call: Call, index: int) -> relax.Expr:
    """Dequantize the operand at an index; its scale and zero point are the next two inputs."""
    return call.emit(dequantize(replace(call, inputs=_three_inputs(call, index), attributes={})))


def _quantize_result(call: Call, result: relax.Expr, index: int) -> relax.Expr:
    """Quantize a result with the scale and zero point at an index."""
    scale, zero = _three_inputs(call, index)[:2]
    return quantize(replace(call, inputs=(call.emit(result), scale, zero), attributes={}))


def _three_inputs(call: Call, index: int) -> tuple[relax.Expr | None, ...]:
    return (*call.inputs[index : index + 3], None, None, None)[:3]


def _binary(call: Call, compute: _Compute) -> relax.Expr:
    """Convert a binary operator, such as QLinearAdd."""
    return _quantize_result(call, compute(_dequantize_input(call, 0), _dequantize_input(call, 3)), 6)


def _unary(call: Call, compute: _Compute) -> relax.Expr:
    """Convert a unary operator, such as QLinearSigmoid."""
    return _quantize_result(call, compute(call, _dequantize_input(call, 0)), 3)


def _in_float32(operator: str, call: Call, data: relax.Expr) -> relax.Expr:
    """Apply the ONNX operator of this type, with the call's attributes, in float32."""
    from anole.extract.onnx.operators import CONVERTERS

    attributes = {name: value for name, value in call.attributes.items() if name != "channels_last"}
    float_call = replace(call, operator=operator, inputs=(data,), attributes=attributes)
    convert = CONVERTERS.get(operator)
    result: Any = float_call.by_tvm() if convert is None else convert(float_call)
    return result


def _pool(call: Call, operator: str) -> relax.Expr:
    if call.flag("channels_last"):
        raise call.refuse("channels_last is not supported")
    return _unary(call, partial(_in_float32, operator))


def _softmax(call: Call) -> relax.Expr:
    axis = call.axis(len(call.shape(0)), -1)
    if call.integer("opset", 13) < 13 and axis != len(call.shape(0)) - 1:
        raise call.refuse("the attribute opset is below 13, and axis is not the last one")
    return _unary(call, lambda call, data: relax.op.nn.softmax(data, axis))


def _concat(call: Call) -> relax.Expr:
    parts = [_dequantize_input(call, index) for index in range(2, len(call.inputs), 3)]
    concatenated = relax.op.concat(parts, call.axis(len(shape_of(parts[0])), 1))
    return quantize(replace(call, inputs=(call.emit(concatenated), *call.inputs[:2]), attributes={}))


def _gemm(call: Call) -> relax.Expr:
    """Multiply; the result stays float32 unless an output scale is given."""
    inputs: list[relax.Expr | None] = [_dequantize_input(call, 0), call.emit(dequantize(_right_dequantization(call)))]
    if call.has(6):
        alpha = const(call.attributes.get("alpha", 1.0), "float32")
        scale = call.emit(relax.op.multiply(call.emit(relax.op.multiply(call.input(1), call.input(4))), alpha))
        inputs.append(call.emit(relax.op.multiply(call.cast(call.input(6), "float32"), scale)))
    result = gemm(replace(call, operator="Gemm", inputs=tuple(inputs)))
    return _quantize_result(call, result, 7) if call.has(7) else result


def _right_dequantization(call: Call) -> Call:
    """Return the dequantization call of the right operand, which may have a scale per output column."""
    return replace(call, inputs=_three_inputs(call, 3), attributes={"axis": 0 if call.flag("transB") else 1})


CONVERTERS: dict[str, Converter] = {
    "QGemm": _gemm,
    "QLinearAdd": partial(_binary, compute=relax.op.add),
    "QLinearAveragePool": partial(_pool, operator="AveragePool"),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": partial(_pool, operator="GlobalAveragePool"),
    "QLinearLeakyRelu": partial(_unary, compute=partial(_in_float32, "LeakyRelu")),
    "QLinearMul": partial(_binary, compute=relax.op.multiply),
    "QLinearSigmoid": partial(_unary, compute=partial(_in_float32, "Sigmoid")),
    "QLinearSoftmax": _softmax,
}
"""Converters by operator type."""
