"""Simplification of rounding to 8-bit integers: remove round trips through 8 bits, and save an instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx

from anole.ir.nodes import map_nodes

_RANGES = {"uint8": (0, 255), "int8": (-128, 127)}


@dataclass(frozen=True)
class _RoundedValue:
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
    """Remove casts of rounded floats to 8 bits and back, and merge the rounding into casts to 8 bits."""
    return map_nodes(map_nodes(func, tirx.Cast, _remove_round_trip), tirx.Cast, _merge_rounding)


def _remove_round_trip(cast: tirx.Cast) -> Any:
    """Remove a cast of integral float32 values to 8 bits, maybe to int32, and back."""
    inner = cast.value
    while isinstance(inner, tirx.Cast) and "int32" in str(inner.ty.dtype):
        inner = inner.value
    if "float32" not in str(cast.ty.dtype) or not isinstance(inner, tirx.Cast) or not _is_rounded_to_range(inner):
        return cast
    return inner.value


def _merge_rounding(cast: tirx.Cast) -> Any:
    """Return a cast to 8 bits that clips first, and then rounds (half to even) by the conversion instruction."""
    if not _is_rounded_to_range(cast):
        return cast
    match, float_type = _match_rounding(cast.value), str(cast.value.ty.dtype)
    assert match is not None
    clipped = match.exact
    for limit, bound in ((tirx.min, match.high), (tirx.max, match.low)):
        clipped = limit(clipped, _constant(clipped, bound - match.shift, float_type))
    integer_type = float_type.replace("float32", "int32")
    integer = tirx.call_llvm_pure_intrin(integer_type, "llvm.lrint", clipped)
    if match.shift:
        integer = integer + _constant(integer, match.shift, integer_type)
    return tirx.Cast(cast.ty.dtype, integer)


def _is_rounded_to_range(cast: tirx.Cast) -> bool:
    """Whether a value cast to 8 bits was rounded, and clipped to the range of the type."""
    limits = next((limits for name, limits in _RANGES.items() if str(cast.ty.dtype).startswith(name)), None)
    match = _match_rounding(cast.value) if limits is not None and "float32" in str(cast.value.ty.dtype) else None
    return limits is not None and match is not None and limits[0] <= match.low and match.high <= limits[1]


def _match_rounding(value: Any) -> _RoundedValue | None:
    """Match an expression that rounds, shifts and clips; return None if it does anything else."""
    if isinstance(value, ir.Call) and getattr(value.op, "name", "") == "tirx.nearbyint":
        return _RoundedValue(value.args[0], 0, float("-inf"), float("inf"))
    if not isinstance(value, (tirx.Add, tirx.Sub, tirx.Min, tirx.Max)):
        return None
    inner, constant = _match_rounding(value.a), _integral_constant(value.b)
    if inner is None or constant is None:
        return None
    if isinstance(value, tirx.Min):
        return _RoundedValue(inner.exact, inner.shift, min(inner.low, constant), min(inner.high, constant))
    if isinstance(value, tirx.Max):
        return _RoundedValue(inner.exact, inner.shift, max(inner.low, constant), max(inner.high, constant))
    shift = constant if isinstance(value, tirx.Add) else -constant
    return _RoundedValue(inner.exact, inner.shift + shift, inner.low + shift, inner.high + shift)


def _integral_constant(value: Any) -> int | None:
    """Return the value of an integral constant, scalar or broadcast, or None."""
    literal = value.value if isinstance(value, tirx.Broadcast) else value
    if not isinstance(literal, (tirx.FloatImm, tirx.IntImm)) or not float(literal.value).is_integer():
        return None
    return int(literal.value)


def _constant(value: Any, number: float, dtype: str) -> Any:
    """Return a constant of a type, broadcast to the type's lanes."""
    name, _, lanes = dtype.partition("x")
    literal = tirx.const(number, name)
    return tirx.Broadcast(literal, int(lanes)) if lanes else literal
