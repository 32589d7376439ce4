"""Legalizes orders and extremes of floats as those of integers, so that NaN and infinities have their place.

TVM's own reductions ignore NaN and start at the largest finite value, so that the index in a row of infinities is -1;
its sorts leave rows with NaN out of order. Like in torch, NaN is the last value of an ascending order, and the extreme
of both kinds. A softmax and a pool have reductions of their own, which are faster and ignore NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import ir, relax, te, tirx, topi

from anole.ir.polynomials import Value, bound

Legalize = Callable[[relax.BlockBuilder, ir.Call], ir.Expr]

_ALL_BUT_SIGN = _LAST = 2**31 - 1
"""The key of NaN, above those of all other values; it is below them with a minus."""


def extremes_map() -> dict[str, Legalize]:
    """Return the legalization of each operator; types other than float32 keep TVM's definition."""
    sorts = ("relax.argsort", "relax.sort", "relax.topk")
    return {
        "relax.max": _reduction(partial(_extreme, reducer=te.max, nan=_LAST)),
        "relax.min": _reduction(partial(_extreme, reducer=te.min, nan=-_LAST)),
        "relax.argmax": _reduction(lambda data, *given: topi.argmax(_keys(data, _LAST), *given)),
        "relax.argmin": _reduction(lambda data, *given: topi.argmin(_keys(data, -_LAST), *given)),
        **dict.fromkeys(sorts, _legalize_sort),
    }


def _reduction(definition: Callable[..., te.Tensor]) -> Legalize:
    def legalize(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
        if str(call.args[0].ty.dtype) != "float32":
            return call.op.get_attr("FLegalize")(bb, call)
        axis, hint = call.attrs.axis, str(call.op.name).rpartition(".")[2]
        found = bb.call_te(definition, call.args[0], axis, bool(call.attrs.keepdims), primfunc_name_hint=hint)
        if str(call.ty.dtype) != "float32":
            return found
        return bb.call_te(_numbers, bb.emit(found), primfunc_name_hint="numbers")

    return legalize


def _legalize_sort(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Sort keys instead of numbers; TVM dispatches what remains to its library."""
    if str(call.args[0].ty.dtype) != "float32":
        return call
    keys = bb.emit(bb.call_te(_keys, call.args[0], _LAST, primfunc_name_hint="keys"))
    found = bb.emit(relax.Call(call.op, [keys], call.attrs))
    numbers = partial(bb.call_te, _numbers, primfunc_name_hint="numbers")
    if not isinstance(call.ty, ir.TupleType):
        return numbers(found) if str(call.ty.dtype) == "float32" else found
    return relax.Tuple([bb.emit(numbers(bb.emit(found[0]))), bb.emit(found[1])])


def _extreme(data: te.Tensor, axis: Any, keepdims: bool, *, reducer: Callable[..., Value], nan: int) -> te.Tensor:
    """Define an extreme; unlike TVM's, it has the keys within the reduction, not in a buffer."""
    axes = range(data.ndim) if axis is None else [int(each) % data.ndim for each in axis]
    taps = {at: te.reduce_axis((0, data.shape[at]), f"k{at}") for at in axes}
    shape = [1 if at in taps else extent for at, extent in enumerate(data.shape) if keepdims or at not in taps]

    def element(*at: Value) -> Value:
        own = iter(at if not keepdims else [index for axis, index in enumerate(at) if axis not in taps])
        places = [taps[axis] if axis in taps else next(own) for axis in range(data.ndim)]
        return reducer(bound(data(*places), partial(_key, nan)), axis=list(taps.values()))

    return te.compute(shape, element, "extreme")


def _keys(data: te.Tensor, nan: int) -> te.Tensor:
    return te.compute(data.shape, lambda *at: bound(data(*at), partial(_key, nan)), "key")


def _key(nan: int, x: Value) -> Value:
    """Return an integer in the order of the numbers, the same for both zeros; NaN has one of its own."""
    signed = bound(tirx.reinterpret("int32", x), lambda bits: _negated(bits & _ALL_BUT_SIGN, bits >> 31))
    return tirx.Select(tirx.isnan(x), tirx.const(nan, "int32"), signed)


def _numbers(keys: te.Tensor) -> te.Tensor:
    """Return the numbers of keys; that of NaN becomes NaN."""

    def number(key: Value) -> Value:
        bits = bound(key >> 31, lambda sign: _negated(key, sign) | (sign << 31))
        return tirx.reinterpret("float32", bits)

    return te.compute(keys.shape, lambda *at: bound(keys(*at), number), "number")


def _negated(value: Value, sign: Value) -> Value:
    """Return the negative of an integer where the sign is -1, and itself where that is 0."""
    return (value ^ sign) - sign
