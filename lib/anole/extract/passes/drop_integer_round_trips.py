"""Leaves numbers in float32 that were rounded there, where they would become bytes and float32 again."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.value_ranges import Values, is_byte
from anole.ir.mutators import bindings, operator_of, rewritten, value_of


def drop_integer_round_trips(module: tvm.IRModule) -> tvm.IRModule:
    """Return a module in which what a `clip` left of whole numbers becomes no bytes on its way to a computation."""
    known: Values = {binding.var: binding.value for binding in bindings(module["main"])}

    class Keeper(_Keeper):
        values = known

    return rewritten(module, mutator(Keeper))


class _Keeper(PyExprMutator):  # type: ignore[misc]
    """Attribute: what the variables of the function are bound to."""

    values: Values

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        found = self._kept(call)
        return self.visit_expr_post_order(call) if found is None else found

    def _kept(self, call: ir.Call) -> ir.Expr | None:
        """Return what a conversion to float32 is without the ones before it, or None."""
        if operator_of(call) != "relax.astype" or str(call.attrs.dtype) != "float32":
            return None
        inner, offset = self._made(call.args[0]), None
        if operator_of(inner) == "relax.subtract":
            inner, offset = self._made(inner.args[0]), value_of(inner.args[1])
            if offset is None:
                return None
        if operator_of(inner) == "relax.astype" and operator_of(self._made(inner.args[0])) == "relax.astype":
            inner = self._made(inner.args[0])
        if operator_of(inner) != "relax.astype" or not is_byte(inner.args[0], str(inner.ty.dtype), self.values):
            return None
        whole = self.visit_expr(inner.args[0])
        return whole if offset is None else relax.op.subtract(whole, relax.const(offset.astype("float32")))

    def _made(self, expr: ir.Expr) -> Any:
        return self.values.get(expr) if isinstance(expr, relax.Var) else None
