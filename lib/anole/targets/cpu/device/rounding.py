"""Simplification of rounding to 8-bit integers: remove round trips through bytes, and save an instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from anole.ir.nodes import with_each

_BYTES = {"uint8": (0, 255), "int8": (-128, 127)}


@dataclass(frozen=True)
class _Rounded:
    """A rounded, shifted and clipped value: an integer from `low` to `high`.

    Attributes:
        exact: the value before rounding.
        shift: the integer added after rounding.
    """

    exact: Any
    shift: int
    low: float
    high: float


def simplify_rounding(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Use rounded floats instead of their bytes where they become floats again, and round in the cast to bytes."""
    return with_each(with_each(func, tirx.Cast, _without_bytes), tirx.Cast, _rounding)


def _without_bytes(cast: tirx.Cast) -> Any:
    """Remove a cast of integral float32 values to bytes, perhaps to int32, and back."""
    inner = cast.value
    while isinstance(inner, tirx.Cast) and "int32" in str(inner.ty.dtype):
        inner = inner.value
    if "float32" not in str(cast.ty.dtype) or not isinstance(inner, tirx.Cast) or not _fits(inner):
        return cast
    return inner.value


def _rounding(cast: tirx.Cast) -> Any:
    """Return a cast to bytes that clips first, and then rounds (half to even) by the conversion instruction."""
    if not _fits(cast):
        return cast
    found, wide = _rounded(cast.value), str(cast.value.ty.dtype)
    assert found is not None
    clipped = found.exact
    for limit, bound in ((tirx.min, found.high), (tirx.max, found.low)):
        clipped = limit(clipped, _like(clipped, bound - found.shift, wide))
    integer_type = wide.replace("float32", "int32")
    integer = tirx.call_llvm_pure_intrin(integer_type, "llvm.lrint", clipped)
    if found.shift:
        integer = integer + _like(integer, found.shift, integer_type)
    return tirx.Cast(cast.ty.dtype, integer)


def _fits(cast: tirx.Cast) -> bool:
    """Whether a value cast to bytes was rounded, and clipped to the range of the type."""
    limits = next((each for name, each in _BYTES.items() if str(cast.ty.dtype).startswith(name)), None)
    found = _rounded(cast.value) if limits is not None and "float32" in str(cast.value.ty.dtype) else None
    return limits is not None and found is not None and limits[0] <= found.low and found.high <= limits[1]


def _rounded(value: Any) -> _Rounded | None:
    """Match an expression that rounds, shifts and clips; return None if it does anything else."""
    if isinstance(value, ir.Call) and getattr(value.op, "name", "") == "tirx.nearbyint":
        return _Rounded(value.args[0], 0, float("-inf"), float("inf"))
    if not isinstance(value, (tirx.Add, tirx.Sub, tirx.Min, tirx.Max)):
        return None
    inner, constant = _rounded(value.a), _integral_constant(value.b)
    if inner is None or constant is None:
        return None
    if isinstance(value, tirx.Min):
        return _Rounded(inner.exact, inner.shift, min(inner.low, constant), min(inner.high, constant))
    if isinstance(value, tirx.Max):
        return _Rounded(inner.exact, inner.shift, max(inner.low, constant), max(inner.high, constant))
    shift = constant if isinstance(value, tirx.Add) else -constant
    return _Rounded(inner.exact, inner.shift + shift, inner.low + shift, inner.high + shift)


def _integral_constant(value: Any) -> int | None:
    """Return the value of an integral constant, scalar or broadcast, or None."""
    literal = value.value if isinstance(value, tirx.Broadcast) else value
    if not isinstance(literal, (tirx.FloatImm, tirx.IntImm)) or not float(literal.value).is_integer():
        return None
    return int(literal.value)


def _like(value: Any, number: float, dtype: str) -> Any:
    """Return a constant of a type, broadcast to the type's lanes."""
    name, _, lanes = dtype.partition("x")
    literal = tirx.const(number, name)
    return tirx.Broadcast(literal, int(lanes)) if lanes else literal
