"""Lets convolutions and dense layers multiply numbers of a narrower type, and stores what they read in that type.

Sums, and all other operators, stay in float32. A value is rounded once, where it is computed, so that whatever reads it
reads less memory; operators that only move or choose values do so after the rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.mutators import ELEMENTWISE, bindings, operator_of, rewritten, value_of, with_attrs
from anole.task import Workload

Narrowed = Callable[[Workload], Workload]
"""Maps a workload of float32 to the same, or to one of a narrower type."""

_COMMUTING = frozenset(
    f"relax.{name}" for name in "reshape permute_dims strided_slice concat squeeze expand_dims nn.max_pool2d".split()
)
"""Operators whose result is the same whether their operands or their results are rounded."""

_READERS = frozenset((*ELEMENTWISE, "relax.mean", "relax.nn.avg_pool2d", "relax.nn.adaptive_avg_pool2d"))
"""Other operators that widen what they read within their own kernels."""


def narrow(module: tvm.IRModule, workload_of: Callable[[ir.Expr], Workload | None], narrowed: Narrowed) -> tvm.IRModule:
    """Returns a module in normal form whose anchor operators have the types that `narrowed` gives their workloads."""
    dtypes: dict[relax.Var, str] = {}
    stored: dict[relax.Var, str] = {}
    for binding in reversed(list(bindings(module["main"]))):
        workload = workload_of(binding.value)
        if workload is not None and (dtype := narrowed(workload).dtype) != workload.dtype:
            dtypes[binding.var] = stored[binding.value.args[0]] = dtype
        elif binding.var in stored and operator_of(binding.value) in _COMMUTING:
            stored |= {operand: stored[binding.var] for operand in _tensors(binding.value)}
    if not dtypes:
        return module

    class Narrower(_Narrower):
        anchors, stored_as = dtypes, stored

    return rewritten(module, mutator(Narrower))


def _tensors(call: ir.Call) -> list[relax.Var]:
    """Returns the variables of float32 that a call reads."""
    operands = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else call.args
    return [
        each for each in operands if isinstance(each, relax.Var) and str(getattr(each.ty, "dtype", "")) == "float32"
    ]


class _Narrower(PyExprMutator):  # type: ignore[misc]
    """Attributes: the types of anchor operators and of stored values, by the variables that they are bound to."""

    anchors: dict[relax.Var, str]
    stored_as: dict[relax.Var, str]

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._rounded: dict[relax.Var, ir.Expr] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._binding = binding.var
        super().visit_var_binding_(binding)

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        variable, operator = self._binding, operator_of(call)
        if (anchor := self.anchors.get(variable)) is not None:
            return self._narrow_anchor(call, anchor)
        if operator in _COMMUTING and (dtype := self.stored_as.get(variable)) is not None:
            moved = self._on(call, lambda operand: self._rounded_to(operand, dtype))
            self._rounded[variable] = self.builder_.emit(moved)
            return relax.op.astype(self._rounded[variable], "float32")
        return self._on(call, self._widened) if operator in _READERS else self.visit_expr_post_order(call)

    def _narrow_anchor(self, call: ir.Call, dtype: str) -> ir.Call:
        data, weight = call.args
        values = np.asarray(value_of(weight)).astype(getattr(ml_dtypes, dtype))
        return with_attrs(call, [self._rounded_to(data, dtype), relax.const(values, dtype)], out_dtype="float32")

    def _on(self, call: ir.Call, change: Callable[[relax.Var], ir.Expr]) -> ir.Call:
        """Returns the call with the variables of float32 that it reads changed."""
        tensors = _tensors(call)

        def changed(operand: ir.Expr) -> ir.Expr:
            if isinstance(operand, relax.Tuple):
                return relax.Tuple(list(map(changed, operand.fields)))
            return change(operand) if any(operand.same_as(each) for each in tensors) else self.visit_expr(operand)

        return with_attrs(call, list(map(changed, call.args)))

    def _rounded_to(self, operand: relax.Var, dtype: str) -> ir.Expr:
        """Returns a value in a narrower type; it is rounded once."""
        if operand not in self._rounded:
            self._rounded[operand] = self.builder_.emit(relax.op.astype(self.visit_expr(operand), dtype))
        return self._rounded[operand]

    def _widened(self, operand: relax.Var) -> ir.Expr:
        """Returns a value in float32, as it is stored; no other operator shares the conversion."""
        dtype = self.stored_as.get(operand)
        if dtype is None:
            return self.visit_expr(operand)
        return self.builder_.emit(relax.op.astype(self._rounded_to(operand, dtype), "float32"))
