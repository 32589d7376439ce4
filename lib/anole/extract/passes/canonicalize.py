"""Pass that brings axes, indices, bounds and powers into the form that later passes and schedules expect."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import tvm
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.value_ranges import COMPARISONS
from anole.ir.mutators import extents, operator_of, resolve, resolve_call, rewrite, value_of, with_attrs
from anole.ir.nodes import collect


def canonicalize(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite takes, stacks, bounds and powers, and make axes non-negative.

    The layout conversion crashes on a squeeze with a negative axis, and stops at bounds that are tensors, as in ONNX. A
    take with a single index is looked up element by element. A power calls a library function for each vector lane.
    """
    return rewrite(module, _Canonicalizer)


def _squeeze(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    if call.attrs.axis is None:
        return call
    rank = len(call.args[0].ty.shape)
    return relax.op.squeeze(call.args[0], [int(axis) % rank for axis in call.attrs.axis])


def _stack(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Replace a stack by a concatenation, since the layout conversion cannot name the axis that a stack adds."""
    stacked = resolve(builder, call.args[0])
    if not isinstance(stacked, relax.Tuple):
        return call
    axis = int(call.attrs.axis or 0) % len(call.ty.shape)
    return relax.op.concat([relax.op.expand_dims(part, axis) for part in stacked.fields], axis)


def _take(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    data, index = call.args[0], value_of(call.args[1])
    if call.attrs.axis is not None and index is None and str(call.attrs.mode) == "fast":
        # An index out of bounds, such as an unknown token's, must not read arbitrary memory.
        return relax.op.take(data, call.args[1], call.attrs.axis, "clip")
    if call.attrs.axis is None or index is None or index.ndim:
        return call
    axis = int(call.attrs.axis) % len(data.ty.shape)
    start = int(index) % int(data.ty.shape[axis])
    return relax.op.squeeze(relax.op.strided_slice(data, [axis], [start], [start + 1]), [axis])


def _layer_norm(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Flatten several normalized axes, since the layout conversion permutes only the data, not the weights."""
    data, *weights = call.args
    shape, n_axes = extents(data), len(call.attrs.axes)
    if n_axes < 2 or sorted(int(axis) % len(shape) for axis in call.attrs.axes) != [*range(len(shape))][-n_axes:]:
        return call
    flat = [math.prod(shape[-n_axes:])]
    operands = [relax.op.reshape(data, shape[:-n_axes] + flat), *(relax.op.reshape(weight, flat) for weight in weights)]
    return relax.op.reshape(with_attrs(call, operands, axes=[-1]), shape)


def _maximum(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    lower = _scalar(call.args[1])
    return call if lower is None else relax.op.clip(call.args[0], lower, math.inf)


def _minimum(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    upper = _scalar(call.args[1])
    if upper is None:
        return call
    if (inner := resolve_call(builder, call.args[0], "relax.clip")) is not None:
        clipped, low, high = inner.args
        if upper >= float(low.value):
            return relax.op.clip(clipped, low, min(upper, float(high.value)))
    return relax.op.clip(call.args[0], -math.inf, upper)


def _power(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Replace a power by roots or products, since the library function would be called for each vector lane."""
    data, exponent = call.args[0], _scalar(call.args[1])
    if exponent in _ROOTS:
        return _ROOTS[exponent](data)
    if exponent not in (1.0, 2.0, 3.0, 4.0):
        return call
    return reduce(relax.op.multiply, [data] * int(exponent))


def _compare_bools(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Replace a comparison of booleans by logic, since LLVM rejects TVM's code for it."""
    left, right = call.args
    if not isinstance(left.ty, relax.TensorType) or str(left.ty.dtype) != "bool":
        return call
    negate = relax.op.logical_not
    return {
        "relax.equal": lambda: negate(relax.op.logical_xor(left, right)),
        "relax.not_equal": lambda: relax.op.logical_xor(left, right),
        "relax.less": lambda: relax.op.logical_and(negate(left), right),
        "relax.less_equal": lambda: relax.op.logical_or(negate(left), right),
        "relax.greater": lambda: relax.op.logical_and(left, negate(right)),
        "relax.greater_equal": lambda: relax.op.logical_or(left, negate(right)),
    }[operator_of(call)]()


def _elementwise(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Replace a function for the elementwise maximum or minimum with a scalar by the operator."""
    operands = list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else []
    if len(operands) != 2 or _scalar(operands[1]) is None:
        return call
    func = builder.get()[call.args[0]]
    stores = collect(func.body, tirx.BufferStore)
    if len(stores) != 1 or type(stores[0].value) not in _MIN_MAX:
        return call
    (store,) = stores
    operation = store.value
    if not all(isinstance(operand, ir.TensorLoad) for operand in (operation.a, operation.b)):
        return call
    loaded, stored = list(operation.a.indices), list(store.indices)
    is_in_place = len(loaded) == len(stored) and all(a.same_as(b) for a, b in zip(loaded, stored, strict=True))
    is_in_order = operation.a.source.same_as(func.params[0]) and operation.b.source.same_as(func.params[1])
    return _MIN_MAX[type(operation)](builder, relax.Call(call.op, operands)) if is_in_place and is_in_order else call


def _scalar(operand: ir.Expr) -> float | None:
    """Return the value of a 0-d floating-point constant, or None for all other operands."""
    value = value_of(operand)
    return float(value) if value is not None and not value.ndim and value.dtype.kind == "f" else None


_REWRITES: dict[str, Callable[[relax.BlockBuilder, ir.Call], ir.Expr]] = {
    **dict.fromkeys(COMPARISONS, _compare_bools),
    "relax.call_tir": _elementwise,
    "relax.maximum": _maximum,
    "relax.nn.layer_norm": _layer_norm,
    "relax.minimum": _minimum,
    "relax.power": _power,
    "relax.squeeze": _squeeze,
    "relax.stack": _stack,
    "relax.take": _take,
}
_ROOTS = {0.5: relax.op.sqrt, -0.5: relax.op.rsqrt}
_MIN_MAX = {tirx.Max: _maximum, tirx.Min: _minimum}


@mutator
class _Canonicalizer(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        rewrite = _REWRITES.get(operator_of(call))
        return call if rewrite is None else rewrite(self.builder_, call)
