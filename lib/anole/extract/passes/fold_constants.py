"""Evaluates operators on constants with NumPy: batch-norm arithmetic, layouts and indices; TVM compiles each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.mutators import bound, rewritten

_Fold = Callable[..., NDArray[Any]]

_FOLDS: dict[str, _Fold] = {
    "relax.add": lambda call, a, b: a + b,
    "relax.subtract": lambda call, a, b: a - b,
    "relax.multiply": lambda call, a, b: a * b,
    "relax.divide": lambda call, a, b: a / b,
    "relax.negative": lambda call, a: -a,
    "relax.sqrt": lambda call, a: np.sqrt(a),
    "relax.rsqrt": lambda call, a: 1 / np.sqrt(a),
    "relax.permute_dims": lambda call, a: a.transpose(call.attrs.axes and [int(axis) for axis in call.attrs.axes]),
    "relax.expand_dims": lambda call, a: np.expand_dims(a, tuple(int(axis) for axis in call.attrs.axis)),
    "relax.squeeze": lambda call, a: a.reshape([int(extent) for extent in call.ty.shape]),
    "relax.reshape": lambda call, a, shape: a.reshape(shape),
    "relax.less": lambda call, a, b: a < b,
    "relax.where": lambda call, a, b, c: np.asarray(np.where(a, b, c)),
    "relax.take": lambda call, a, b: np.take(a, b, call.attrs.axis, mode="wrap"),
    "relax.shape_to_tensor": lambda call, a: a,
}


def fold_constants(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module with every supported operator on constants evaluated."""
    return rewritten(module, _Folder)


@mutator
class _Folder(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        fold = _FOLDS.get(call.op.name) if isinstance(call.op, ir.Op) else None
        if fold is None:
            return call
        operands = [value_behind(self, arg) for arg in call.args]
        if any(operand is None for operand in operands):
            return call
        call = self.builder_.normalize(call)
        return relax.const(np.asarray(fold(call, *operands), order="C"), str(call.ty.dtype))


def value_behind(mutator: Any, expr: ir.Expr) -> NDArray[Any] | None:
    """Returns the constant that an expression is bound to in a mutator's new function, see `value_of`."""
    found = bound(mutator, expr)
    return value_of(expr if found is None else found)


def value_of(expr: ir.Expr) -> NDArray[Any] | None:
    """Returns the value of a constant or of a known shape; None for everything else."""
    if isinstance(expr.ty, relax.ShapeType) and all(isinstance(extent, tirx.IntImm) for extent in expr.ty.values):
        return np.array([int(extent) for extent in expr.ty.values], np.int64)
    if isinstance(expr, (tirx.FloatImm, tirx.IntImm)):
        return np.array(expr.value, str(expr.ty.dtype))
    if isinstance(expr, ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor):
        return cast(NDArray[Any], expr.value.numpy())
    return None
