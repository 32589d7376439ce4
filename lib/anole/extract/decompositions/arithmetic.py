"""Decompositions of element-wise arithmetic that TVM's importer does not support or gets wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

_aten = torch.ops.aten


def _elu(data: torch.Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    return scale * torch.where(data > 0, data, alpha * torch.expm1(input_scale * data))


def _softplus(data: torch.Tensor, beta: float = 1.0, threshold: float = 20.0) -> torch.Tensor:
    scaled = data * beta
    return torch.where(scaled > threshold, data, torch.log1p(torch.exp(scaled)) / beta)


def _add(data: torch.Tensor, other: Any, *, alpha: float = 1) -> Any:
    if data.dtype == getattr(other, "dtype", None) == torch.bool:
        return data | other
    return NotImplemented if alpha == 1 else data + alpha * other


def _subtract(data: torch.Tensor, other: Any, *, alpha: float = 1) -> Any:
    return NotImplemented if alpha == 1 else data - alpha * other


def _subtract_from(data: torch.Tensor, other: Any, alpha: float = 1) -> Any:
    return (-data if alpha == 1 else data * -alpha) + other


def _divide(data: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """Cast operands to the result's type first; TVM's importer rejects mixed types and divides integers as integers."""
    if not isinstance(data, torch.Tensor):
        data = torch.full((), data)
    dtype = torch.result_type(data, other)
    if dtype.is_complex:
        return NotImplemented
    if rounding_mode is None and not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    is_plain = data.dtype == dtype and (rounding_mode is None or isinstance(other, torch.Tensor))
    if is_plain and getattr(other, "dtype", dtype) == dtype:
        return NotImplemented
    other = other.to(dtype) if isinstance(other, torch.Tensor) else data.new_full((), other, dtype=dtype)
    return torch.div(data.to(dtype), other, rounding_mode=rounding_mode)


def _divide_with_mode(data: torch.Tensor, other: Any, *, rounding_mode: str | None = None) -> Any:
    """Subtract the remainder before a floor division, since the plain quotient may be rounded up to an integer."""
    if rounding_mode != "floor" or not torch.result_type(data, other).is_floating_point:
        return _divide(data, other, rounding_mode=rounding_mode)
    other = torch.as_tensor(other, dtype=data.dtype)
    remainder = torch.fmod(data, other)
    quotient = torch.round((data - remainder) / other)
    is_below = torch.logical_and(remainder != 0, torch.logical_xor(remainder < 0, other < 0))
    return torch.where(other == 0, data / other, torch.where(is_below, quotient - 1, quotient))


def _remainder(data: Any, other: Any) -> Any:
    """Correct the sign of fmod's exact remainder; TVM uses the rounded quotient, which is wrong if it is large."""
    dtype = torch.result_type(data, other)
    if not dtype.is_floating_point:
        return NotImplemented
    reference = data if isinstance(data, torch.Tensor) else other
    dividend, divisor = (
        operand.to(dtype) if isinstance(operand, torch.Tensor) else reference.new_full((), operand, dtype=dtype)
        for operand in (data, other)
    )
    remainder = torch.fmod(dividend, divisor)
    return torch.where((remainder != 0) & ((remainder < 0) != (divisor < 0)), remainder + divisor, remainder)


def _as_float(data: torch.Tensor) -> torch.Tensor:
    return data if data.is_floating_point() else data.to(torch.get_default_dtype())


def _expm1(data: torch.Tensor) -> torch.Tensor:
    """Avoid the cancellation of exp(x) - 1 near zero; in float32 by a Taylor series."""
    data = _as_float(data)
    if data.dtype == torch.float64:
        return torch.tanh(data / 2) * (torch.exp(data) + 1)
    series = data / 720
    for factorial in (120, 24, 6, 2, 1):
        series = (series + 1 / factorial) * data
    return torch.where(data.abs() < 0.25, series, torch.exp(data) - 1)


def _log1p(data: torch.Tensor) -> torch.Tensor:
    """Correct the logarithm for the rounding error of 1 + x."""
    data = _as_float(data)
    total = 1 + data
    added = total - 1
    return torch.where(added == 0, data, torch.log(total) * torch.where(added == data, 1.0, data / added))


def _sinh(data: torch.Tensor) -> torch.Tensor:
    """Avoid cancellation near zero, and stay finite up to 89.4, although exp(x) is infinite there."""
    data = _as_float(data)
    magnitude = data.abs()
    expm1, sqrt_exp = torch.expm1(magnitude), torch.exp(magnitude / 2)
    result = torch.where(magnitude < 20, (expm1 + expm1 / (expm1 + 1)) / 2, sqrt_exp / 2 * sqrt_exp)
    return torch.where(data < 0, -result, result)


def _cosh(data: torch.Tensor) -> torch.Tensor:
    sqrt_exp = torch.exp(_as_float(data).abs() / 2)
    return sqrt_exp / 2 * sqrt_exp + 0.5 / (sqrt_exp * sqrt_exp)


def _atanh(data: torch.Tensor) -> torch.Tensor:
    data = _as_float(data)
    return torch.log1p(2 * data / (1 - data)) / 2


def _hypot(data: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Divide by the larger operand first, since its square may overflow."""
    first, second = data.abs(), other.abs()
    larger, smaller = torch.maximum(first, second), torch.minimum(first, second)
    ratio = smaller / torch.where(larger == 0, 1, larger)
    is_infinite = torch.logical_or(first.isinf(), second.isinf())
    return torch.where(is_infinite, torch.inf, larger * torch.sqrt(1 + ratio * ratio))


def _logaddexp(data: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    larger = torch.maximum(data, other)
    correction = torch.log1p(torch.exp(-(data - other).abs()))
    return torch.where(data == other, data + math.log(2), larger + correction)


def _ignore_nan(function: Callable[..., torch.Tensor], data: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the maximum or minimum of two values, ignoring NaN."""
    if not torch.result_type(data, other).is_floating_point:
        return function(data, other)
    return torch.where(data.isnan(), other, torch.where(other.isnan(), data, function(data, other)))


def _multiply(data: torch.Tensor, other: Any) -> Any:
    is_boolean = data.dtype == getattr(other, "dtype", None) == torch.bool
    return torch.logical_and(data, other) if is_boolean else NotImplemented


def _sign_bit(data: torch.Tensor) -> torch.Tensor:
    """Detect negative zeros by dividing by them."""
    is_below = data < 0
    return is_below | (1 / data == -math.inf) if data.is_floating_point() else is_below


def _copy_sign(data: torch.Tensor, other: Any) -> torch.Tensor:
    other = torch.as_tensor(other)
    values = _as_float(data).to(torch.result_type(_as_float(data), other))
    return torch.where(torch.signbit(values) == torch.signbit(other), values, -values)


def _angle(data: torch.Tensor) -> Any:
    if data.is_complex():
        return NotImplemented
    values = _as_float(data)
    return torch.where(values < 0, math.pi, torch.where(values.isnan(), values, 0.0))


def _clamp(data: torch.Tensor, low: float | None = None, high: float | None = None) -> Any:
    """Clamp integers on one side; TVM's importer uses infinity as the other bound."""
    if data.is_floating_point() or None not in (low, high):
        return NotImplemented
    if low is not None:
        return torch.maximum(data, data.new_full((), low))
    return data if high is None else torch.minimum(data, data.new_full((), high))


def _clamp_range(data: torch.Tensor, low: torch.Tensor | None = None, high: torch.Tensor | None = None) -> torch.Tensor:
    data = data if low is None else torch.maximum(data, low)
    return data if high is None else torch.minimum(data, high)


ARITHMETIC: dict[Any, Callable[..., Any]] = {
    _aten.elu.default: _elu,
    _aten.add.Tensor: _add,
    _aten.sub.Tensor: _subtract,
    _aten.rsub.Tensor: _subtract_from,
    _aten.rsub.Scalar: _subtract_from,
    _aten.softplus.default: _softplus,
    _aten.div.Tensor: _divide,
    _aten.div.Tensor_mode: _divide_with_mode,
    _aten.div.Scalar: _divide,
    _aten.div.Scalar_mode: _divide_with_mode,
    _aten.remainder.Tensor: _remainder,
    _aten.remainder.Scalar: _remainder,
    _aten.remainder.Scalar_Tensor: _remainder,
    _aten.expm1.default: _expm1,
    _aten.log1p.default: _log1p,
    _aten.atanh.default: _atanh,
    _aten._neg_view.default: torch.neg,
    _aten.sinh.default: _sinh,
    _aten.cosh.default: _cosh,
    _aten.exp2.default: lambda data: torch.exp(_as_float(data) * math.log(2)),
    _aten.fmax.default: partial(_ignore_nan, torch.maximum),
    _aten.fmin.default: partial(_ignore_nan, torch.minimum),
    _aten.hypot.default: _hypot,
    _aten.logaddexp.default: _logaddexp,
    _aten.mul.Tensor: _multiply,
    _aten.signbit.default: _sign_bit,
    _aten.copysign.Tensor: _copy_sign,
    _aten.copysign.Scalar: _copy_sign,
    _aten.angle.default: _angle,
    _aten.clamp.default: _clamp,
    _aten.clamp.Tensor: _clamp_range,
}
