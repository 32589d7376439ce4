"""NaN propagation in maxima, minima and comparisons of floats, where it costs no time.

TVM's maximum is ``a > b ? a : b``, one instruction of x86, which yields `b` if either operand is NaN; its minimum is
analogous. With a constant on the left, as in activations and clips, NaN passes at no cost. For two computed operands,
LLVM's maximum takes a few more instructions, which the memory traffic of an element-wise kernel hides. The running
maximum of a pool or a softmax would take up to twice the time, so it ignores NaN. TVM's ``a != b`` is false for NaN.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from anole.ir.nodes import map_nodes

_MIN_MAX = {tirx.Max: "llvm.maximum", tirx.Min: "llvm.minimum"}
"""LLVM's intrinsics that propagate NaN, by operation."""


def keep_nan(func: tirx.PrimFunc, *_: Any) -> tirx.PrimFunc:
    """Replace maxima, minima and inequalities by expressions that propagate NaN, except running maxima and minima."""
    for kind in (tirx.BufferStore, tirx.Bind):
        func = map_nodes(func, kind, _with_nan_propagation)
    return map_nodes(func, tirx.NE, _propagate_nan_in_inequality)


def _with_nan_propagation(statement: Any) -> Any:
    """Return the statement with a value that propagates NaN, unless it is a running maximum or minimum."""
    value = statement.value
    if isinstance(statement, tirx.Bind):
        return tirx.Bind(statement.var, _with_nan(value))
    is_running = type(value) in _MIN_MAX and any(_is_overwritten(statement, side) for side in (value.a, value.b))
    new_value = type(value)(_with_nan(value.a), _with_nan(value.b)) if is_running else _with_nan(value)
    return tirx.BufferStore(statement.buffer, new_value, statement.indices)


def _is_overwritten(store: tirx.BufferStore, operand: Any) -> bool:
    is_load = isinstance(operand, ir.TensorLoad) and operand.source.same_as(store.buffer)
    return is_load and tvm_ffi.structural_equal(list(operand.indices), list(store.indices))


def _with_nan(value: Any) -> Any:
    for kind in _MIN_MAX:
        value = tvm_ffi.structural_map(value, (kind, _propagate_nan_in_min_max), order="post")
    return value


def _propagate_nan_in_min_max(operation: Any) -> Any:
    a, b = operation.a, operation.b
    if not _is_float(a) or _is_constant(a):
        return operation
    if _is_constant(b):
        return type(operation)(b, a)
    return tirx.call_llvm_pure_intrin(a.ty.dtype, _MIN_MAX[type(operation)], a, b)


def _propagate_nan_in_inequality(comparison: tirx.NE) -> Any:
    return tirx.Not(tirx.EQ(comparison.a, comparison.b)) if _is_float(comparison.a) else comparison


def _is_float(value: Any) -> bool:
    return "float" in str(value.ty.dtype)


def _is_constant(value: Any) -> bool:
    return isinstance(value.value if isinstance(value, tirx.Broadcast) else value, tirx.FloatImm)
