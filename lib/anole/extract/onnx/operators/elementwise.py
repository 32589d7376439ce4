"""Converters for elementwise operators: minimum and maximum, powers, remainders, casts and bit casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from anole.extract.onnx.operators.call import Call, Converter, compute_dtype, const, dtype_of
from anole.extract.shifts import shift

_INTERMEDIATE_DTYPES = {
    **dict.fromkeys(("int8", "uint8", "int16", "uint16", "int32"), "int32"),
    **dict.fromkeys(("uint32", "int64"), "int64"),
}
"""By integer dtype, the dtype that floats are converted to first; the lowest bits of that result are used."""


def _reduce(operator: Callable[[relax.Expr, relax.Expr], relax.Expr], call: Call) -> relax.Expr:
    """Convert a variadic operator, which reduces its inputs with a binary operator."""
    values = [value for value in call.inputs if value is not None]
    return values[0] if len(values) == 1 else call.emit(reduce(operator, values))


def _mean(call: Call) -> relax.Expr:
    total = _reduce(relax.op.add, call)
    return call.emit(relax.op.divide(total, const(len(call.inputs), dtype_of(call.input(0)))))


def _is_inf(call: Call) -> relax.Expr:
    data = call.input(0)
    result, zero = relax.op.isinf(data), const(0, dtype_of(data))
    if not call.flag("detect_negative", True):
        result = relax.op.logical_and(result, relax.op.greater(data, zero))
    if not call.flag("detect_positive", True):
        result = relax.op.logical_and(result, relax.op.less(data, zero))
    return call.emit(result)


def _cosh(call: Call) -> relax.Expr:
    """Compute the hyperbolic cosine by exponentials, since LLVM has no intrinsic for it."""
    data = call.input(0)
    half = const(0.5, dtype_of(data))
    # exp(|x|) would overflow before exp(|x|) / 2 does.
    root = call.emit(relax.op.exp(relax.op.multiply(relax.op.abs(data), half)))
    half_root = call.emit(relax.op.multiply(root, half))
    reciprocal = relax.op.divide(relax.op.divide(half, root), root)
    return call.emit(relax.op.add(relax.op.multiply(half_root, root), reciprocal))


def _sinh(call: Call) -> relax.Expr:
    """Compute the hyperbolic sine, near 0 by its series, since the difference of exponentials cancels there."""
    data = call.input(0)

    def compute(data: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            x = data(*i)
            square = x * x
            series = x * (1 + square / 6 * (1 + square / 20 * (1 + square / 42)))
            root = tirx.exp(x * 0.5)
            return tirx.Select(tirx.abs(x) < 0.5, series, root * 0.5 * root - 0.5 / root / root)

        return te.compute(data.shape, element, "sinh")

    return call.cast(call.kernel(compute, call.widen(data)), dtype_of(data))


def _power(call: Call) -> relax.Expr:
    """Compute a power in the base's dtype; the exponent may have another dtype."""
    base, exponent = call.input(0), call.input(1)
    dtype, exponent_dtype = dtype_of(base), dtype_of(exponent)
    if dtype == exponent_dtype and dtype.startswith("float"):
        return call.by_tvm()
    if dtype.startswith("float"):
        return call.emit(relax.op.power(base, call.cast(exponent, dtype)))
    if exponent_dtype.startswith("float"):
        # float32 cannot represent large int64 results.
        double_power = relax.op.power(call.cast(base, "float64"), call.cast(exponent, "float64"))
        return call.cast(call.emit(double_power), dtype)
    return _integer_power(call, base, call.cast(exponent, "int64"))


def _integer_power(call: Call, base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    """Compute an exact integer power by repeated squaring."""
    dtype = dtype_of(base)
    result = one = const(1, dtype)
    square = base
    for bit in range(6 if dtype.endswith("64") else 5):
        digit = relax.op.right_shift(exponent, const(bit, "int64"))
        is_set = call.emit(relax.op.bitwise_and(digit, const(1, "int64")))
        result = call.emit(relax.op.multiply(result, relax.op.where(call.cast(is_set, "bool"), square, one)))
        square = call.emit(relax.op.multiply(square, square))
    return result


def _bit_shift(call: Call) -> relax.Expr:
    is_right = call.choice("direction", ("LEFT", "RIGHT"), "") == "RIGHT"
    return call.emit(shift(call.input(0), call.input(1), is_right))


def _mod(call: Call) -> relax.Expr:
    """Compute the remainder; for floats, it has the divisor's sign (``fmod`` = 0) or the dividend's (``fmod`` = 1)."""
    a, b = call.input(0), call.input(1)
    result_dtype = dtype_of(a)
    if not result_dtype.startswith("float"):
        return call.by_tvm()
    has_sign_of_dividend, dtype = call.flag("fmod"), compute_dtype(result_dtype)

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        extents = np.broadcast_shapes(_shape_of(a), _shape_of(b))

        def element(*i: Any) -> Any:
            x, y = _broadcast(a, i), _broadcast(b, i)
            remainder = tirx.call_pure_extern(dtype, "fmod" if dtype == "float64" else "fmodf", x, y)
            if has_sign_of_dividend:
                return remainder
            zero = tirx.const(0, dtype)
            has_other_sign = tirx.any(tirx.all(remainder < 0, y > 0), tirx.all(remainder > 0, y < 0))
            signed_zero = tirx.call_pure_extern(dtype, "copysign" if dtype == "float64" else "copysignf", zero, y)
            return tirx.Select(has_other_sign, remainder + y, tirx.Select(remainder == zero, signed_zero, remainder))

        return te.compute(extents, element, "mod")

    return call.cast(call.kernel(compute, call.cast(a, dtype), call.cast(b, dtype)), result_dtype)


def _shape_of(tensor: te.Tensor) -> tuple[int, ...]:
    """Return the shape of a kernel's tensor."""
    return tuple(int(extent) for extent in tensor.shape)


def _broadcast(tensor: te.Tensor, result_indices: tuple[Any, ...]) -> Any:
    """Return an element of a broadcast tensor."""
    shape = _shape_of(tensor)
    indices = result_indices[len(result_indices) - len(shape) :] if shape else ()
    return tensor(*(0 if extent == 1 else index for extent, index in zip(shape, indices, strict=True)))


def _cast(call: Call) -> relax.Expr:
    """Truncate floats to integers as C compilers do; TVM's code for out-of-range values takes minutes to compile."""
    data, to = call.input(0), call.dtype("to", "")
    is_float = isinstance(data.ty, relax.TensorType) and dtype_of(data).startswith("float")
    if not is_float or call.constant(0) is not None or to not in _INTERMEDIATE_DTYPES:
        return call.by_tvm()
    return call.cast(call.cast(data, _INTERMEDIATE_DTYPES[to]), to)


def _bit_cast(call: Call) -> relax.Expr:
    """Reinterpret the bits as another dtype of the same size."""
    data = call.input(0)
    dtype = dtype_of(data)
    to = call.dtype("to", dtype)
    if dtype == to:
        return data
    if np.dtype(dtype).itemsize != np.dtype(to).itemsize:
        raise call.refuse(f"found {dtype} and {to}; only dtypes of the same size are supported")
    if dtype == "bool":
        return call.cast(call.cast(data, "uint8"), to)
    if to == "bool":
        return call.emit(relax.op.not_equal(data, const(0, dtype)))

    def compute(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *i: tirx.reinterpret(to, data(*i)), "bits")

    return call.kernel(compute, data)


def _eye_like(call: Call) -> relax.Expr:
    shape = call.shape(0)
    if len(shape) != 2:
        raise call.refuse(f"found shape {list(shape)}; only matrices are supported")
    return const(np.eye(*shape, k=call.integer("k", 0)), call.dtype("dtype", dtype_of(call.input(0))))


def _dropout(call: Call) -> relax.Expr | list[relax.Expr]:
    """Return the data unchanged, as in inference, with an all-true mask."""
    training_mode = call.constant(2)
    if call.has(2) and (training_mode is None or training_mode.any()):
        raise call.refuse("training_mode must be constant and false")
    mask = const(np.ones(call.shape(0)), "bool")
    return call.input(0) if call.n_outputs == 1 else [call.input(0), mask]


def _celu(call: Call) -> relax.Expr:
    """Scale an Elu; ONNX's function definition would turn a scalar into a vector."""
    alpha = const(call.attributes.get("alpha", 1.0), dtype_of(call.input(0)))
    scaled = call.emit(relax.op.divide(call.input(0), alpha))
    elu = call.by_tvm(operator="Elu", inputs=(scaled,), attributes={})
    return call.emit(relax.op.multiply(elu, alpha))


def _prelu(call: Call) -> relax.Expr:
    """Use TVM's converter, whose operator requires data with at least one axis."""
    if call.shape(0):
        return call.by_tvm()
    data = call.emit(relax.op.reshape(call.input(0), [1]))
    return call.emit(relax.op.reshape(call.by_tvm(inputs=(data, *call.inputs[1:])), []))


def _thresholded_relu(call: Call) -> relax.Expr:
    """Select by the condition; TVM's converter multiplies by it, which turns -inf into NaN."""
    data, dtype = call.input(0), dtype_of(call.input(0))
    is_above = relax.op.greater(data, const(call.attributes.get("alpha", 1.0), dtype))
    return call.emit(relax.op.where(is_above, data, const(0, dtype)))


CONVERTERS: dict[str, Converter] = {
    "BitCast": _bit_cast,
    "BitShift": _bit_shift,
    "Cast": _cast,
    "Celu": _celu,
    "Cosh": _cosh,
    "Dropout": _dropout,
    "EyeLike": _eye_like,
    "IsInf": _is_inf,
    "Max": partial(_reduce, relax.op.maximum),
    "Mean": _mean,
    "Min": partial(_reduce, relax.op.minimum),
    "Mod": _mod,
    "OptionalHasElement": lambda call: const(call.has(0), "bool"),
    "PRelu": _prelu,
    "Pow": _power,
    "Sinh": _sinh,
    "Sum": partial(_reduce, relax.op.add),
    "ThresholdedRelu": _thresholded_relu,
}
"""Converters by operator type."""
