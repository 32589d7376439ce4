"""Removes tensors without elements: TVM's kernels for them read memory that nothing wrote, or cannot be compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import bindings, bound, extents, operator_of, rewritten
from anole.ir.symbols import typical_shape

_OF_NOTHING = {**dict.fromkeys(("relax.einsum", "relax.matmul", "relax.sum"), 0), "relax.prod": 1}
"""The results of sums and products over no elements."""

_KEPT = tuple(f"relax.{name}" for name in ("call_tir", "nn.pad", "scatter_elements", "scatter_nd", "slice_scatter"))
"""Operators that may have operands without elements where the result has some."""


def drop_empty(module: tvm.IRModule) -> tvm.IRModule:
    """Leave empty operands out of concatenations, and replace sums and products over no elements by constants."""
    values = [binding.value for binding in bindings(module)]
    operands = [ty for value in values for ty in (*_types(value), *_operand_types(value))]
    return rewritten(module, _Dropper) if any(map(_is_empty, operands)) else module


def reads_nothing(value: ir.Expr) -> bool:
    """Whether an operator computes elements from an operand without any, which only few kernels can."""
    if any(map(_is_empty, _types(value))) or operator_of(value) in _KEPT:
        return False
    return any(map(_is_empty, _operand_types(value)))


def _types(value: ir.Expr) -> list[Any]:
    return list(value.ty.fields) if isinstance(value.ty, ir.TupleType) else [value.ty]


def _operand_types(value: ir.Expr) -> list[Any]:
    return [ty for each in value.args for ty in _types(each)] if isinstance(value, ir.Call) else []


def _is_empty(ty: Any) -> bool:
    return 0 in (typical_shape(getattr(ty, "shape", None)) or ())


@mutator
class _Dropper(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if operator_of(call) == "relax.split" and any(map(_is_empty, call.ty.fields)):
            return self._parts(call)
        if operator_of(call) == "relax.concat":
            return self._joined(call)
        if not reads_nothing(call) or operator_of(call) not in _OF_NOTHING:
            return call
        value = np.full(extents(call), _OF_NOTHING[operator_of(call)])
        return relax.const(value, str(call.ty.dtype))

    def _joined(self, call: ir.Call) -> ir.Expr:
        joined = bound(self, call.args[0])
        parts = list(joined.fields) if isinstance(joined, relax.Tuple) else []
        kept = [each for each in parts if not _is_empty(each.ty)]
        if len(kept) == len(parts):
            return call
        return kept[0] if len(kept) == 1 else relax.op.concat(kept, call.attrs.axis)

    def _parts(self, call: ir.Call) -> ir.Expr:
        """Return the parts of a split as slices; TVM accepts no split into parts without elements."""
        axis, start, parts = int(call.attrs.axis) % len(extents(call.args[0])), 0, []
        for ty in call.ty.fields:
            end = start + int(ty.shape[axis])
            parts.append(self.builder_.emit(relax.op.strided_slice(call.args[0], [axis], [start], [end])))
            start = end
        return relax.Tuple(parts)
