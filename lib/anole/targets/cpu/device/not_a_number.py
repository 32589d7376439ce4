"""Keeps NaN in maxima, minima and comparisons of floats, where that costs no time.

TVM's maximum is ``a > b ? a : b``, one instruction of x86, which yields `b` if either operand is NaN; its minimum is
analogous. With a constant on the left, as in activations and clips, NaN passes at no cost. For two computed operands,
NaN takes a comparison and a selection more, which an element-wise kernel hides behind its memory traffic. The running
maximum of a pool or a softmax would take up to twice the time, so it ignores NaN. TVM's ``a != b`` is false for NaN.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from anole.targets.shared.nodes import with_each
from anole.targets.shared.polynomials import bound


def keep_nan(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Replaces extremes and inequalities by expressions that keep NaN, except running extremes."""
    func = with_each(func, tirx.BufferStore, _without_running_extreme)
    for kind in (tirx.Max, tirx.Min):
        func = with_each(func, kind, _keeping)
    return with_each(func, tirx.NE, _unequal)


def _without_running_extreme(store: tirx.BufferStore) -> tirx.BufferStore:
    """Writes the extreme of what a store overwrites and another value as the comparison that it is compiled to."""
    value = store.value
    if not isinstance(value, (tirx.Max, tirx.Min)) or not any(
        _is_overwritten(store, each) for each in (value.a, value.b)
    ):
        return store
    compared = tirx.GT if isinstance(value, tirx.Max) else tirx.LT
    chosen = bound(value.a, lambda a: bound(value.b, lambda b: tirx.Select(compared(a, b), a, b)))
    return tirx.BufferStore(store.buffer, chosen, store.indices)


def _is_overwritten(store: tirx.BufferStore, operand: Any) -> bool:
    is_load = isinstance(operand, ir.TensorLoad) and operand.source.same_as(store.buffer)
    return is_load and tvm_ffi.structural_equal(list(operand.indices), list(store.indices))


def _keeping(extreme: Any) -> Any:
    kind, a, b = type(extreme), extreme.a, extreme.b
    if not _is_float(a) or _is_constant(a):
        return extreme
    return kind(b, a) if _is_constant(b) else bound(b, lambda b: tirx.Select(tirx.isnan(b), b, kind(b, a)))


def _unequal(comparison: tirx.NE) -> Any:
    return tirx.Not(tirx.EQ(comparison.a, comparison.b)) if _is_float(comparison.a) else comparison


def _is_float(value: Any) -> bool:
    return "float" in str(value.ty.dtype)


def _is_constant(value: Any) -> bool:
    return isinstance(value.value if isinstance(value, tirx.Broadcast) else value, tirx.FloatImm)
