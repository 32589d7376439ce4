"""Constant folding: evaluate common operators with NumPy, and others with TVM, which compiles each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import bindings, operator_of, resolve, resolve_value, rewrite, value_of

_Fold = Callable[..., NDArray[Any]]

_FOLDS: dict[str, _Fold] = {
    "relax.add": lambda call, a, b: a + b,
    "relax.subtract": lambda call, a, b: a - b,
    "relax.multiply": lambda call, a, b: a * b,
    "relax.divide": lambda call, a, b: a / b,
    "relax.power": lambda call, a, b: a**b,
    "relax.negative": lambda call, a: -a,
    "relax.astype": lambda call, a: a.astype(str(call.ty.dtype)),
    "relax.sqrt": lambda call, a: np.sqrt(a),
    "relax.rsqrt": lambda call, a: 1 / np.sqrt(a),
    "relax.permute_dims": lambda call, a: a.transpose(call.attrs.axes and [int(axis) for axis in call.attrs.axes]),
    "relax.expand_dims": lambda call, a: np.expand_dims(a, tuple(int(axis) for axis in call.attrs.axis)),
    "relax.squeeze": lambda call, a: a.reshape([int(extent) for extent in call.ty.shape]),
    "relax.reshape": lambda call, a, shape: a.reshape(shape),
    "relax.broadcast_to": lambda call, a, shape: np.broadcast_to(a, shape),
    "relax.matmul": lambda call, a, b: np.matmul(a, b),
    "relax.less": lambda call, a, b: a < b,
    "relax.where": lambda call, a, b, c: np.asarray(np.where(a, b, c)),
    "relax.take": lambda call, a, b: np.take(a, b, call.attrs.axis, mode="wrap"),
    "relax.shape_to_tensor": lambda call, a: a,
    "relax.concat": lambda call, *parts: np.concatenate(parts, int(call.attrs.axis or 0)),
}


def fold_constants(module: tvm.IRModule) -> tvm.IRModule:
    """Evaluate all operators on constants.

    TVM's own pass is slow: it lowers every operator of the network before it checks whether its operands are constant.
    """
    return rewrite(module, _Folder)


@mutator
class _Folder(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        fold = _FOLDS.get(operator_of(call))
        if fold is None:
            return self._evaluate(call)
        operands = [resolve_value(self, operand_) for arg in call.args for operand_ in self._parts(arg)]
        if any(operand is None for operand in operands):
            return call
        call = self.builder_.normalize(call)
        with np.errstate(all="ignore"):
            value = fold(call, *operands)
        return relax.const(np.asarray(value, order="C"), str(call.ty.dtype))

    def _parts(self, operand: ir.Expr) -> list[ir.Expr]:
        """Return the fields of a tuple, or only the operand if it is no tuple."""
        value = resolve(self, operand)
        return list(value.fields) if isinstance(value, relax.Tuple) else [operand]

    def _evaluate(self, call: ir.Call) -> ir.Expr:
        """Evaluate a call with TVM; return it unchanged if an operand is not constant."""
        if not operator_of(call):
            return call
        operands = [self._constant(operand) for operand in call.args]
        if not operands or any(operand is None for operand in operands):
            return call
        builder = relax.BlockBuilder()
        if call.op.name == "relax.call_tir":
            operands[0] = builder.add_func(self.builder_.get()[call.args[0]], call.args[0].name_hint)
        with builder.function("main", []):
            with builder.dataflow():
                result = builder.emit_output(builder.emit(ir.Call(call.op, operands, call.attrs, call.ty_args)))
            builder.emit_func_output(result)
        folded = relax.transform.FoldConstant()(builder.get())["main"]
        first = next(bindings(folded), None)
        value = folded.body.body if first is None else first.value
        return value if isinstance(value, ir.GenericConst) else call

    def _constant(self, operand: ir.Expr) -> ir.Expr | None:
        """Replace an operand's variables by constants; return None if it depends on an input."""
        value = resolve(self, operand)
        if isinstance(value, relax.Tuple):
            fields = [self._constant(field) for field in value.fields]
            return None if any(field is None for field in fields) else relax.Tuple(fields)
        is_known = isinstance(value, (ir.GenericConst, ir.GlobalVar, tirx.IntImm, tirx.FloatImm, ir.StringImm))
        is_known |= isinstance(value, relax.ShapeExpr) and value_of(value) is not None
        return value if is_known else None
