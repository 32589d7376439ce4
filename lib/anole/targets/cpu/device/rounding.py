"""Simplifies how kernels round to whole numbers of 8 bits: no way to bytes and back, and one instruction less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from anole.ir.nodes import with_each

_BYTES = {"uint8": (0, 255), "int8": (-128, 127)}


@dataclass(frozen=True)
class _Rounded:
    """What was rounded to whole numbers, shifted and clipped: whole numbers from `low` to `high`.

    Attributes:
        exact: the number that was rounded.
        shift: what was added afterwards.
    """

    exact: Any
    shift: int
    low: float
    high: float


def simplify_rounding(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Computes on with what was rounded instead of its bytes, and rounds where numbers become whole."""
    return with_each(with_each(func, tirx.Cast, _without_bytes), tirx.Cast, _rounding)


def _without_bytes(cast: tirx.Cast) -> Any:
    """Return whole numbers in float32 that were converted to bytes, perhaps to wider numbers, and back."""
    inner = cast.value
    while isinstance(inner, tirx.Cast) and "int32" in str(inner.ty.dtype):
        inner = inner.value
    if "float32" not in str(cast.ty.dtype) or not isinstance(inner, tirx.Cast) or not _fits(inner):
        return cast
    return inner.value


def _rounding(cast: tirx.Cast) -> Any:
    """Return bytes of numbers that are clipped first and then rounded by the conversion, which rounds to even."""
    if not _fits(cast):
        return cast
    found, wide = _rounded(cast.value), str(cast.value.ty.dtype)
    assert found is not None
    clipped = found.exact
    for limit, bound in ((tirx.min, found.high), (tirx.max, found.low)):
        clipped = limit(clipped, _like(clipped, bound - found.shift, wide))
    whole_type = wide.replace("float32", "int32")
    whole = tirx.call_llvm_pure_intrin(whole_type, "llvm.lrint", clipped)
    if found.shift:
        whole = whole + _like(whole, found.shift, whole_type)
    return tirx.Cast(cast.ty.dtype, whole)


def _fits(cast: tirx.Cast) -> bool:
    """Whether a conversion to bytes is of numbers that were rounded and are within the range of the type."""
    limits = next((each for name, each in _BYTES.items() if str(cast.ty.dtype).startswith(name)), None)
    found = _rounded(cast.value) if limits is not None and "float32" in str(cast.value.ty.dtype) else None
    return limits is not None and found is not None and limits[0] <= found.low and found.high <= limits[1]


def _rounded(value: Any) -> _Rounded | None:
    """Return how an expression rounds; None if it does something else."""
    if isinstance(value, ir.Call) and getattr(value.op, "name", "") == "tirx.nearbyint":
        return _Rounded(value.args[0], 0, float("-inf"), float("inf"))
    if not isinstance(value, (tirx.Add, tirx.Sub, tirx.Min, tirx.Max)):
        return None
    inner, constant = _rounded(value.a), _whole(value.b)
    if inner is None or constant is None:
        return None
    if isinstance(value, tirx.Min):
        return _Rounded(inner.exact, inner.shift, min(inner.low, constant), min(inner.high, constant))
    if isinstance(value, tirx.Max):
        return _Rounded(inner.exact, inner.shift, max(inner.low, constant), max(inner.high, constant))
    shift = constant if isinstance(value, tirx.Add) else -constant
    return _Rounded(inner.exact, inner.shift + shift, inner.low + shift, inner.high + shift)


def _whole(value: Any) -> int | None:
    """Return the whole number that an expression is, in each lane; None for all else."""
    literal = value.value if isinstance(value, tirx.Broadcast) else value
    if not isinstance(literal, (tirx.FloatImm, tirx.IntImm)) or not float(literal.value).is_integer():
        return None
    return int(literal.value)


def _like(value: Any, number: float, dtype: str) -> Any:
    """Return a number in a type, in as many lanes as a value has."""
    name, _, lanes = dtype.partition("x")
    literal = tirx.const(number, name)
    return tirx.Broadcast(literal, int(lanes)) if lanes else literal
