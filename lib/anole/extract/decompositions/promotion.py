"""Operands of types that torch promotes; TVM's importer takes them as they are, or a number for one of their type."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch.utils import _pytree as pytree

_aten = torch.ops.aten


def _as_floats(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes floats of other numbers before it computes an operator."""

    def compute(data: torch.Tensor, *others: Any, **named: Any) -> Any:
        if not is_exact(data):
            return NotImplemented
        return operator(data.to(torch.get_default_dtype()), *others, **named)

    return compute


def is_exact(data: torch.Tensor) -> bool:
    """Whether numbers are integers or booleans."""
    return not data.is_floating_point() and not data.is_complex()


def _promoted(operator: Callable[..., Any], at_least: torch.dtype | None = None) -> Callable[..., Any]:
    """Return what computes an operator with both operands in their common type.

    Args:
        operator: the operator.
        at_least: the type in which it computes booleans.
    """

    def compute(data: Any, other: Any, *more: Any, **named: Any) -> Any:
        dtype = torch.result_type(data, other)
        if at_least is not None and dtype == torch.bool:
            dtype = at_least
        operands = [each for each in (data, other) if isinstance(each, torch.Tensor)]
        if dtype.is_complex or all(each.dtype == dtype for each in operands):
            return NotImplemented
        cast = [each.to(dtype) if isinstance(each, torch.Tensor) else each for each in (data, other)]
        return operator(*cast, *more, **named)

    return compute


def _as_integers(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return what computes an operator of booleans in int32."""

    def compute(data: torch.Tensor, *others: Any, **named: Any) -> Any:
        if data.dtype != torch.bool:
            return NotImplemented
        given = pytree.tree_map_only(torch.Tensor, _as_integer, (data, others, named))
        found = operator(given[0], *given[1], **given[2])
        return pytree.tree_map_only(torch.Tensor, lambda each: each != 0 if each.dtype == torch.int32 else each, found)

    return compute


def _as_integer(data: torch.Tensor) -> torch.Tensor:
    return data.to(torch.int32) if data.dtype == torch.bool else data


def _arc_tangent(data: torch.Tensor, other: torch.Tensor) -> Any:
    if is_exact(data) and is_exact(other):
        return torch.atan2(data.to(torch.get_default_dtype()), other)
    return _promoted(torch.atan2)(data, other)


def _any(data: torch.Tensor, *others: Any) -> Any:
    return NotImplemented if data.dtype == torch.bool else torch.any(data != 0, *others)


def _where(condition: torch.Tensor, data: torch.Tensor, other: torch.Tensor) -> Any:
    dtype = torch.result_type(data, other)
    is_plain = condition.dtype == torch.bool and data.dtype == other.dtype
    return NotImplemented if is_plain else torch.where(condition != 0, data.to(dtype), other.to(dtype))


def _unchanged(is_unchanged: Callable[[torch.Tensor], bool]) -> Callable[..., Any]:
    """Return what copies data that an operator does not change."""
    return lambda data: data.clone() if is_unchanged(data) else NotImplemented


def _answered(answer: bool) -> Callable[..., Any]:
    """Return what answers a question about floats for other numbers."""
    return lambda data: torch.full_like(data, answer, dtype=torch.bool) if is_exact(data) else NotImplemented


def _power(data: Any, exponent: Any) -> Any:
    """Take a power of integers from a list of them; those above the 63rd overflow."""
    dtype = torch.result_type(data, exponent)
    if dtype.is_floating_point or dtype.is_complex or not isinstance(exponent, torch.Tensor):
        return _promoted(torch.pow)(data, exponent)
    data, exponent = torch.broadcast_tensors(torch.as_tensor(data).to(dtype), exponent.to(dtype))  # type: ignore[no-untyped-call]
    powers = data.unsqueeze(-1).expand(*data.shape, 63).cumprod(-1)
    powers = torch.cat([torch.ones_like(data).unsqueeze(-1), powers], -1)
    taken = torch.where(exponent > 63, 62 + exponent % 2, exponent.abs().clamp(max=63))
    result = powers.gather(-1, taken.long().unsqueeze(-1)).squeeze(-1)
    return torch.where((exponent < 0) & (data.abs() != 1), 0, result)


_FLOATS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "erf", "exp", "expm1", "log", "log10", "log1p", "log2"),
    *("reciprocal", "rsqrt", "sigmoid", "sin", "sqrt", "tan", "tanh"),
)
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_ARITHMETIC = ("add", "sub", "mul", "fmod", "remainder")
_OF_NUMBERS = (
    *("amax.default", "amin.default", "argmax.default", "argmin.default", "constant_pad_nd.default", "max.default"),
    *("maximum.default", "min.default", "minimum.default", "scatter_add.default", "sort.default", "sort.stable"),
    *("topk.default",),
)
_UNCHANGED = ("ceil", "floor", "round", "trunc")

PROMOTION: dict[Any, Callable[..., Any]] = {
    **{getattr(_aten, name).default: _as_floats(getattr(_aten, name)) for name in _FLOATS},
    **{
        getattr(getattr(_aten, name), kind): _promoted(getattr(_aten, name), torch.int8)
        for name in _COMPARISONS
        for kind in ("Tensor", "Scalar")
    },
    **{
        getattr(getattr(_aten, name), kind): _promoted(getattr(_aten, name))
        for name in _ARITHMETIC
        for kind in ("Tensor", "Scalar")
    },
    **{operator: _as_integers(operator) for operator in attrgetter(*_OF_NUMBERS)(_aten)},
    **{getattr(_aten, name).default: _unchanged(is_exact) for name in _UNCHANGED},
    **dict.fromkeys((_aten.pow.Tensor_Tensor, _aten.pow.Tensor_Scalar, _aten.pow.Scalar), _power),
    **dict.fromkeys((_aten.any.dim, _aten.any.dims), _any),
    _aten.sign.default: _unchanged(lambda data: data.dtype == torch.bool),
    _aten.isnan.default: _answered(False),
    _aten.isinf.default: _answered(False),
    _aten.isfinite.default: _answered(True),
    _aten.atan2.default: _arc_tangent,
    _aten.where.self: _where,
}
