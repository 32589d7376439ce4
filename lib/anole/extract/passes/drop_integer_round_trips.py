"""Pass that drops casts of rounded float32 values to 8-bit integers and back."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.value_ranges import Values, is_8bit
from anole.ir.mutators import bindings, operator_of, rewrite, value_of


def drop_integer_round_trips(module: tvm.IRModule) -> tvm.IRModule:
    """Remove casts to 8 bits and back to float32 from values that were rounded and clipped to that range."""
    bound_values: Values = {binding.var: binding.value for binding in bindings(module["main"])}

    class Dropper(_RoundTripDropper):
        values = bound_values

    return rewrite(module, mutator(Dropper))


class _RoundTripDropper(PyExprMutator):  # type: ignore[misc]
    """The mutator; `values` holds the bindings of the function."""

    values: Values

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        shortened = self._without_round_trip(call)
        return self.visit_expr_post_order(call) if shortened is None else shortened

    def _without_round_trip(self, call: ir.Call) -> ir.Expr | None:
        """Return a cast to float32 without the preceding round trip, or None if there is no round trip."""
        if operator_of(call) != "relax.astype" or str(call.attrs.dtype) != "float32":
            return None
        inner, offset = self._value(call.args[0]), None
        if operator_of(inner) == "relax.subtract":
            inner, offset = self._value(inner.args[0]), value_of(inner.args[1])
            if offset is None:
                return None
        if operator_of(inner) == "relax.astype" and operator_of(self._value(inner.args[0])) == "relax.astype":
            inner = self._value(inner.args[0])
        if operator_of(inner) != "relax.astype" or not is_8bit(inner.args[0], str(inner.ty.dtype), self.values):
            return None
        rounded = self.visit_expr(inner.args[0])
        return rounded if offset is None else relax.op.subtract(rounded, relax.const(offset.astype("float32")))

    def _value(self, expr: ir.Expr) -> Any:
        return self.values.get(expr) if isinstance(expr, relax.Var) else None
