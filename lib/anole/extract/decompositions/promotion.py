"""Decompositions that promote operands to a common type as torch does; TVM's importer does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch.utils import _pytree as pytree

_aten = torch.ops.aten


def _cast_to_float(operator: Callable[..., Any], data: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Apply an operator to integers and booleans that are cast to float first."""
    return operator(data.to(torch.get_default_dtype()), *args, **kwargs) if is_integral(data) else NotImplemented


def is_integral(data: torch.Tensor) -> bool:
    """Whether a tensor holds integers or booleans."""
    return not data.is_floating_point() and not data.is_complex()


def _promote(operator: Callable[..., Any], bool_dtype: torch.dtype | None = None) -> Callable[..., Any]:
    """Wrap an operator to cast both operands to their common type, and booleans to `bool_dtype` if given."""

    def compute(data: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = torch.result_type(data, other)
        if bool_dtype is not None and dtype == torch.bool:
            dtype = bool_dtype
        operands = [operand for operand in (data, other) if isinstance(operand, torch.Tensor)]
        if dtype.is_complex or all(operand.dtype == dtype for operand in operands):
            return NotImplemented
        cast = [value.to(dtype) if isinstance(value, torch.Tensor) else value for value in (data, other)]
        return operator(*cast, *args, **kwargs)

    return compute


def _compute_in_int32(operator: Callable[..., Any], data: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Apply an operator to booleans in int32."""
    if data.dtype != torch.bool:
        return NotImplemented
    arguments = pytree.tree_map_only(
        torch.Tensor, lambda leaf: leaf.to(torch.int32) if leaf.dtype == torch.bool else leaf, (data, args, kwargs)
    )
    result = operator(arguments[0], *arguments[1], **arguments[2])
    return pytree.tree_map_only(torch.Tensor, lambda leaf: leaf != 0 if leaf.dtype == torch.int32 else leaf, result)


def _arc_tangent(data: torch.Tensor, other: torch.Tensor) -> Any:
    if is_integral(data) and is_integral(other):
        return torch.atan2(data.to(torch.get_default_dtype()), other)
    return _promote(torch.atan2)(data, other)


def _any(data: torch.Tensor, *args: Any) -> Any:
    return NotImplemented if data.dtype == torch.bool else torch.any(data != 0, *args)


def _where(condition: torch.Tensor, data: torch.Tensor, other: torch.Tensor) -> Any:
    dtype = torch.result_type(data, other)
    is_plain = condition.dtype == torch.bool and data.dtype == other.dtype
    return NotImplemented if is_plain else torch.where(condition != 0, data.to(dtype), other.to(dtype))


def _identity_if(is_unchanged: Callable[[torch.Tensor], bool]) -> Callable[..., Any]:
    """Return a decomposition that copies data that an operator would not change."""
    return lambda data: data.clone() if is_unchanged(data) else NotImplemented


def _constant_predicate(answer: bool) -> Callable[..., Any]:
    """Return a decomposition of a predicate of floats, such as isnan, that has a constant answer for integers."""
    return lambda data: torch.full_like(data, answer, dtype=torch.bool) if is_integral(data) else NotImplemented


def _power(data: Any, exponent: Any) -> Any:
    """Look up an integer power in a table of the first 63 powers; higher powers overflow."""
    dtype = torch.result_type(data, exponent)
    if dtype.is_floating_point or dtype.is_complex or not isinstance(exponent, torch.Tensor):
        return _promote(torch.pow)(data, exponent)
    data, exponent = torch.broadcast_tensors(torch.as_tensor(data).to(dtype), exponent.to(dtype))  # type: ignore[no-untyped-call]
    powers = data.unsqueeze(-1).expand(*data.shape, 63).cumprod(-1)
    powers = torch.cat([torch.ones_like(data).unsqueeze(-1), powers], -1)
    index = torch.where(exponent > 63, 62 + exponent % 2, exponent.abs().clamp(max=63))
    result = powers.gather(-1, index.long().unsqueeze(-1)).squeeze(-1)
    return torch.where((exponent < 0) & (data.abs() != 1), 0, result)


_FLOAT_OPERATORS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "erf", "exp", "expm1", "log", "log10", "log1p", "log2"),
    *("reciprocal", "rsqrt", "sigmoid", "sin", "sqrt", "tan", "tanh"),
)
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_ARITHMETIC = ("add", "sub", "mul", "fmod", "remainder")
_NO_BOOL_OPERATORS = (
    *("amax.default", "amin.default", "argmax.default", "argmin.default", "constant_pad_nd.default", "max.default"),
    *("maximum.default", "min.default", "minimum.default", "scatter_add.default", "sort.default", "sort.stable"),
    *("topk.default",),
)
_INTEGER_IDENTITIES = ("ceil", "floor", "round", "trunc")

PROMOTION: dict[Any, Callable[..., Any]] = {
    **{getattr(_aten, name).default: partial(_cast_to_float, getattr(_aten, name)) for name in _FLOAT_OPERATORS},
    **{
        getattr(getattr(_aten, name), kind): _promote(getattr(_aten, name), torch.int8)
        for name in _COMPARISONS
        for kind in ("Tensor", "Scalar")
    },
    **{
        getattr(getattr(_aten, name), kind): _promote(getattr(_aten, name))
        for name in _ARITHMETIC
        for kind in ("Tensor", "Scalar")
    },
    **{operator: partial(_compute_in_int32, operator) for operator in attrgetter(*_NO_BOOL_OPERATORS)(_aten)},
    **{getattr(_aten, name).default: _identity_if(is_integral) for name in _INTEGER_IDENTITIES},
    **dict.fromkeys((_aten.pow.Tensor_Tensor, _aten.pow.Tensor_Scalar, _aten.pow.Scalar), _power),
    **dict.fromkeys((_aten.any.dim, _aten.any.dims), _any),
    _aten.sign.default: _identity_if(lambda data: data.dtype == torch.bool),
    _aten.isnan.default: _constant_predicate(False),
    _aten.isinf.default: _constant_predicate(False),
    _aten.isfinite.default: _constant_predicate(True),
    _aten.atan2.default: _arc_tangent,
    _aten.where.self: _where,
}
