"""Legalize sorts, maxima and minima of floats through integer keys, which order NaN and infinities correctly.

TVM's own reductions ignore NaN and start at the largest finite value, which yields the index -1 in a row of infinities;
its sorts leave rows with NaN unordered. As in torch, NaN sorts last, and is both the maximum and the minimum of data
that contains it. Softmax and pooling have separate reductions, which are faster and ignore NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import ir, relax, te, tirx, topi

from anole.ir.polynomials import Value, bound

Legalize = Callable[[relax.BlockBuilder, ir.Call], ir.Expr]

_MAGNITUDE_MASK = _NAN_KEY = 2**31 - 1
"""All bits except the sign. It is the key of NaN, above all other keys; its negative is below them."""


def extremes_map() -> dict[str, Legalize]:
    """Return the legalization of each operator; dtypes other than float32 keep TVM's definition."""
    definitions: dict[str, Callable[..., te.Tensor]] = {
        "relax.max": partial(_min_or_max, reducer=te.max, nan=_NAN_KEY),
        "relax.min": partial(_min_or_max, reducer=te.min, nan=-_NAN_KEY),
        "relax.argmax": lambda data, *arguments: topi.argmax(_keys(data, _NAN_KEY), *arguments),
        "relax.argmin": lambda data, *arguments: topi.argmin(_keys(data, -_NAN_KEY), *arguments),
    }
    return {
        **{name: partial(_legalize_float32, definition) for name, definition in definitions.items()},
        **dict.fromkeys(("relax.argsort", "relax.sort", "relax.topk"), _legalize_sort),
    }


def _legalize_float32(definition: Callable[..., te.Tensor], bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    if str(call.args[0].ty.dtype) != "float32":
        return call.op.get_attr("FLegalize")(bb, call)
    axis, hint = call.attrs.axis, str(call.op.name).rpartition(".")[2]
    reduced = bb.call_te(definition, call.args[0], axis, bool(call.attrs.keepdims), primfunc_name_hint=hint)
    if str(call.ty.dtype) != "float32":
        return reduced
    return bb.call_te(_to_floats, bb.emit(reduced), primfunc_name_hint="numbers")


def _legalize_sort(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Sort keys instead of floats; TVM dispatches other dtypes to its library."""
    if str(call.args[0].ty.dtype) != "float32":
        return call
    keys = bb.emit(bb.call_te(_keys, call.args[0], _NAN_KEY, primfunc_name_hint="keys"))
    result = bb.emit(relax.Call(call.op, [keys], call.attrs))
    to_floats = partial(bb.call_te, _to_floats, primfunc_name_hint="numbers")
    if not isinstance(call.ty, ir.TupleType):
        return to_floats(result) if str(call.ty.dtype) == "float32" else result
    return relax.Tuple([bb.emit(to_floats(bb.emit(result[0]))), bb.emit(result[1])])


def _min_or_max(data: te.Tensor, axis: Any, keepdims: bool, *, reducer: Callable[..., Value], nan: int) -> te.Tensor:
    """Define a maximum or minimum; unlike TVM's, it computes keys within the reduction, without a buffer for them."""
    axes = range(data.ndim) if axis is None else [int(axis_) % data.ndim for axis_ in axis]
    inner = {axis_: te.reduce_axis((0, data.shape[axis_]), f"k{axis_}") for axis_ in axes}
    shape = [1 if i in inner else extent for i, extent in enumerate(data.shape) if keepdims or i not in inner]

    def element(*i: Value) -> Value:
        kept_indices = iter(i if not keepdims else [index for axis, index in enumerate(i) if axis not in inner])
        indices = [inner[axis] if axis in inner else next(kept_indices) for axis in range(data.ndim)]
        return reducer(bound(data(*indices), partial(_key, nan)), axis=list(inner.values()))

    return te.compute(shape, element, "extreme")


def _keys(data: te.Tensor, nan: int) -> te.Tensor:
    return te.compute(data.shape, lambda *i: bound(data(*i), partial(_key, nan)), "key")


def _key(nan: int, x: Value) -> Value:
    """Return an integer that orders like the float, the same for both zeros; NaN has the given key."""
    signed = bound(tirx.reinterpret("int32", x), lambda bits: _negate_if(bits & _MAGNITUDE_MASK, bits >> 31))
    return tirx.Select(tirx.isnan(x), tirx.const(nan, "int32"), signed)


def _to_floats(keys: te.Tensor) -> te.Tensor:
    """Convert keys back to floats; the key of NaN becomes NaN."""

    def number(key: Value) -> Value:
        bits = bound(key >> 31, lambda sign: _negate_if(key, sign) | (sign << 31))
        return tirx.reinterpret("float32", bits)

    return te.compute(keys.shape, lambda *i: bound(keys(*i), number), "number")


def _negate_if(value: Value, sign: Value) -> Value:
    """Negate an integer where the sign is -1, and keep it where the sign is 0."""
    return (value ^ sign) - sign
