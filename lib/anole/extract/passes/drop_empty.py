"""Pass that removes empty tensors, whose TVM kernels read uninitialized memory or fail to compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import bindings, extents, operator_of, resolve, rewrite
from anole.ir.symbols import typical_shape

_EMPTY_RESULTS = {**dict.fromkeys(("relax.einsum", "relax.matmul", "relax.sum"), 0), "relax.prod": 1}
"""The results of empty sums and products."""

_ALLOWED = tuple(f"relax.{name}" for name in ("call_tir", "nn.pad", "scatter_elements", "scatter_nd", "slice_scatter"))
"""Supported operators whose result may be non-empty although an operand is empty."""


def drop_empty(module: tvm.IRModule) -> tvm.IRModule:
    """Drop empty operands of concatenations, and replace empty sums and products by constants."""
    values = [binding.value for binding in bindings(module)]
    operands = [ty for value in values for ty in (*_types(value), *_operand_types(value))]
    return rewrite(module, _Dropper) if any(map(_is_empty, operands)) else module


def reads_empty_operand(value: ir.Expr) -> bool:
    """Whether an operator computes a non-empty result from an empty operand, which few kernels support."""
    if any(map(_is_empty, _types(value))) or operator_of(value) in _ALLOWED:
        return False
    return any(map(_is_empty, _operand_types(value)))


def _types(value: ir.Expr) -> list[Any]:
    return list(value.ty.fields) if isinstance(value.ty, ir.TupleType) else [value.ty]


def _operand_types(value: ir.Expr) -> list[Any]:
    return [ty for operand in value.args for ty in _types(operand)] if isinstance(value, ir.Call) else []


def _is_empty(ty: Any) -> bool:
    return 0 in (typical_shape(getattr(ty, "shape", None)) or ())


@mutator
class _Dropper(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if operator_of(call) == "relax.split" and any(map(_is_empty, call.ty.fields)):
            return self._as_slices(call)
        if operator_of(call) == "relax.concat":
            return self._drop_empty_parts(call)
        if not reads_empty_operand(call) or operator_of(call) not in _EMPTY_RESULTS:
            return call
        value = np.full(extents(call), _EMPTY_RESULTS[operator_of(call)])
        return relax.const(value, str(call.ty.dtype))

    def _drop_empty_parts(self, call: ir.Call) -> ir.Expr:
        fields = resolve(self, call.args[0])
        parts = list(fields.fields) if isinstance(fields, relax.Tuple) else []
        remaining = [part for part in parts if not _is_empty(part.ty)]
        if len(remaining) == len(parts):
            return call
        return remaining[0] if len(remaining) == 1 else relax.op.concat(remaining, call.attrs.axis)

    def _as_slices(self, call: ir.Call) -> ir.Expr:
        """Replace a split by slices, since TVM rejects splits with empty parts."""
        axis, start, parts = int(call.attrs.axis) % len(extents(call.args[0])), 0, []
        for ty in call.ty.fields:
            end = start + int(ty.shape[axis])
            parts.append(self.builder_.emit(relax.op.strided_slice(call.args[0], [axis], [start], [end])))
            start = end
        return relax.Tuple(parts)
