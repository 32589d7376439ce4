"""Operators that treat each element alike: extremes, powers, remainders, reinterpreted bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from anole.extract.onnx.operators.by_tvm import by_tvm
from anole.extract.onnx.operators.call import Call, Converter
from anole.extract.onnx.operators.kernels import cast, const, dtype_of, kernel, refuse

_MOST_UNROLLED_POWER = 64


def _chain(operator: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    """Returns the converter of an operator on any number of tensors, which it combines two by two."""

    def convert(call: Call) -> relax.Expr:
        values = [value for value in call.inputs if value is not None]
        return reduce(lambda a, b: call.builder.emit(operator(a, b)), values)

    return convert


def _mean(call: Call) -> relax.Expr:
    total = _chain(relax.op.add)(call)
    return call.builder.emit(relax.op.divide(total, const(len(call.inputs), dtype_of(call.input(0)))))


def _is_inf(call: Call) -> relax.Expr:
    data = call.input(0)
    found = call.builder.emit(relax.op.isinf(data))
    zero = const(0, dtype_of(data))
    if not call.attributes.get("detect_negative", 1):
        found = call.builder.emit(relax.op.logical_and(found, call.builder.emit(relax.op.greater(data, zero))))
    if not call.attributes.get("detect_positive", 1):
        found = call.builder.emit(relax.op.logical_and(found, call.builder.emit(relax.op.less(data, zero))))
    return found


def _hyperbolic(operator: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    """Returns the converter of the hyperbolic cosine (`relax.op.add`); LLVM has no intrinsic for it."""

    def convert(call: Call) -> relax.Expr:
        emit, data = call.builder.emit, call.input(0)
        grown = emit(relax.op.exp(data))
        shrunk = emit(relax.op.exp(emit(relax.op.negative(data))))
        return emit(relax.op.multiply(emit(operator(grown, shrunk)), const(0.5, dtype_of(data))))

    return convert


def _sinh(call: Call) -> relax.Expr:
    """Returns the hyperbolic sine; near 0 by its series, where the difference of exponentials loses digits."""
    data = call.input(0)

    def compute(data: te.Tensor) -> te.Tensor:
        def one(*at: Any) -> Any:
            x = data(*at)
            square = x * x
            series = x * (1 + square / 6 * (1 + square / 20 * (1 + square / 42)))
            return tirx.Select(tirx.abs(x) < 0.5, series, (tirx.exp(x) - tirx.exp(-x)) * 0.5)

        return te.compute(data.shape, one, "sinh")

    dtype = dtype_of(data)
    wide = cast(call, data, "float64" if dtype == "float64" else "float32")
    return cast(call, kernel(call, compute, wide), dtype)


def _power(call: Call) -> relax.Expr:
    """Returns a power of the base's type; an exponent may be of any other type."""
    base, exponent = call.input(0), call.input(1)
    dtype, other = dtype_of(base), dtype_of(exponent)
    if dtype == other and dtype.startswith("float"):
        return by_tvm(call)
    emit = call.builder.emit
    if dtype.startswith("float"):
        return emit(relax.op.power(base, cast(call, exponent, dtype)))
    if other.startswith("float"):
        # A float32 has no room for large results of type int64.
        wide = emit(relax.op.power(cast(call, base, "float64"), cast(call, exponent, "float64")))
        return cast(call, wide, dtype)
    return _integer_power(call, base, cast(call, exponent, "int64"))


def _integer_power(call: Call, base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    """Returns an exact power of integers, by squaring."""
    dtype = dtype_of(base)
    one, emit = const(1, dtype), call.builder.emit
    result: relax.Expr = one
    bits = 6 if dtype.endswith("64") else 5
    square = base
    for bit in range(bits):
        digit = emit(relax.op.right_shift(exponent, const(bit, "int64")))
        is_set = emit(relax.op.bitwise_and(digit, const(1, "int64")))
        chosen = emit(relax.op.where(cast(call, is_set, "bool"), square, one))
        result = emit(relax.op.multiply(result, chosen))
        square = emit(relax.op.multiply(square, square))
    return result


def _mod(call: Call) -> relax.Expr:
    """Returns the remainder; of floats with the divisor's sign (``fmod`` = 0) or the dividend's (``fmod`` = 1)."""
    a, b = call.input(0), call.input(1)
    dtype = dtype_of(a)
    if not dtype.startswith("float"):
        return by_tvm(call)
    has_sign_of_dividend = bool(call.attributes.get("fmod", 0))
    wide = "float64" if dtype == "float64" else "float32"

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        extents = np.broadcast_shapes(shape_of_tensor(a), shape_of_tensor(b))

        def one(*at: Any) -> Any:
            x, y = _broadcast(a, at), _broadcast(b, at)
            rest = tirx.call_pure_extern(wide, "fmod" if wide == "float64" else "fmodf", x, y)
            if has_sign_of_dividend:
                return rest
            zero = tirx.const(0, wide)
            differs = tirx.any(tirx.all(rest < 0, y > 0), tirx.all(rest > 0, y < 0))
            signed_zero = tirx.call_pure_extern(wide, "copysign" if wide == "float64" else "copysignf", zero, y)
            return tirx.Select(differs, rest + y, tirx.Select(rest == zero, signed_zero, rest))

        return te.compute(extents, one, "mod")

    return cast(call, kernel(call, compute, cast(call, a, wide), cast(call, b, wide)), dtype)


def shape_of_tensor(tensor: te.Tensor) -> tuple[int, ...]:
    """Returns the shape of a kernel's tensor."""
    return tuple(int(extent) for extent in tensor.shape)


def _broadcast(tensor: te.Tensor, at: tuple[Any, ...]) -> Any:
    """Returns an element of a tensor that is broadcast."""
    shape = shape_of_tensor(tensor)
    own = at[len(at) - len(shape) :] if shape else ()
    return tensor(*(0 if extent == 1 else index for extent, index in zip(shape, own, strict=True)))


def _bit_cast(call: Call) -> relax.Expr:
    """Returns the same bits as another type of the same size."""
    from onnx.helper import tensor_dtype_to_np_dtype

    data = call.input(0)
    dtype, to = dtype_of(data), np.dtype(tensor_dtype_to_np_dtype(int(call.attributes["to"])))
    if dtype == to.name:
        return data
    if np.dtype(dtype).itemsize != to.itemsize:
        raise refuse(call, f"found {dtype} and {to.name}; only types of the same size are supported")
    if dtype == "bool":
        return cast(call, cast(call, data, "uint8"), to.name)
    if to.name == "bool":
        return call.builder.emit(relax.op.not_equal(data, const(0, dtype)))
    return kernel(
        call, lambda data: te.compute(data.shape, lambda *at: tirx.reinterpret(to.name, data(*at)), "bits"), data
    )


def _eye_like(call: Call) -> relax.Expr:
    from onnx.helper import tensor_dtype_to_np_dtype

    shape = call.shape(0)
    if len(shape) != 2:
        raise refuse(call, f"found shape {list(shape)}; only matrices are supported")
    dtype = dtype_of(call.input(0))
    if "dtype" in call.attributes:
        dtype = np.dtype(tensor_dtype_to_np_dtype(int(call.attributes["dtype"]))).name
    return const(np.eye(*shape, k=int(call.attributes.get("k", 0))), dtype)


def _dropout(call: Call) -> relax.Expr | list[relax.Expr]:
    """Returns the data, since nothing is dropped in inference, and a mask that is true everywhere."""
    trains = call.has(2) and call.constant(2) is not None and bool(np.any(call.constant(2)))
    if trains or (call.has(2) and call.constant(2) is None):
        raise refuse(call, "training_mode must be constant and false")
    mask = const(np.ones(call.shape(0)), "bool")
    return call.input(0) if call.n_outputs == 1 else [call.input(0), mask]


def _has_element(call: Call) -> relax.Expr:
    """Returns whether an optional value is given; a tensor always is."""
    return const(call.has(0), "bool")


CONVERTERS: dict[str, Converter] = {
    "BitCast": _bit_cast,
    "Cosh": _hyperbolic(relax.op.add),
    "Dropout": _dropout,
    "EyeLike": _eye_like,
    "IsInf": _is_inf,
    "Max": _chain(relax.op.maximum),
    "Mean": _mean,
    "Min": _chain(relax.op.minimum),
    "Mod": _mod,
    "OptionalHasElement": _has_element,
    "Pow": _power,
    "Sinh": _sinh,
    "Sum": _chain(relax.op.add),
}
"""Converters by the operator's type."""
