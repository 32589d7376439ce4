"""Compute the operators after an anchor in the shape of its template's result, so they can be fused with it.

A dense layer on (batch, sequence, features) data is computed on flat rows. If its result were reshaped back before bias
and activation, these would be a separate function. So would a residual after a convolution that is reshaped to tokens.
"""

from __future__ import annotations

from itertools import dropwhile
from math import prod
from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.graph import workload_of
from anole.extract.passes.weight_only import scheme_of
from anole.ir.mutators import ELEMENTWISE, extents, resolve_call, rewrite
from anole.ir.normalize_products import is_transposed_product, operands_of, transposed_product
from anole.ir.symbols import size_hint, typical_shape
from anole.targets.shared.reference import data_shape, weight_shape
from anole.task import Attention, Conv2d, Workload

Shape = tuple[int, ...]


def flatten_products(module: tvm.IRModule) -> tvm.IRModule:
    """Flatten matrix products; compute epilogues in the shape of their anchor's result, and reshape only after them."""
    return rewrite(module, _Flattener)


@mutator
class _Flattener(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._results: set[relax.Var] = set()

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if not isinstance(call.op, ir.Op):
            return call
        if call.op.name in ELEMENTWISE:
            return self._flatten_elementwise(call)
        workload = workload_of(call)
        if workload is None or isinstance(workload, Attention):
            return call
        return self._bind_result(call) if isinstance(workload, Conv2d) else self._flatten_product(call, workload)

    def _flatten_product(self, call: ir.Call, workload: Workload) -> ir.Expr:
        left, right = operands_of(call)
        left, right = self._reshape(left, data_shape(workload)), self._reshape(right, weight_shape(workload))
        if is_transposed_product(call):
            product = transposed_product(left, right)
        elif scheme_of(call) is not None:
            product = relax.Call(call.op, [left, right], call.attrs)
        else:
            product = relax.op.matmul(left, right, out_dtype=call.attrs.out_dtype)
        return self._reshape_back(product, call.ty.shape)

    def _flatten_elementwise(self, call: ir.Call) -> ir.Expr:
        """Apply an operator to values in the shape of the template's result instead of reshaped ones."""
        shape = _extents(call)
        result = next((result for operand in call.args if (result := self._find_result(operand)) is not None), None)
        if result is None or prod(_extents(result)) != prod(shape):
            return call
        operands = [self._align(operand, shape, _extents(result)) for operand in call.args]
        if any(operand is None for operand in operands):
            return call
        return self._reshape_back(ir.Call(call.op, operands, call.attrs), call.ty.shape)

    def _reshape_back(self, value: ir.Expr, shape: Any) -> ir.Expr:
        """Reshape a template's result to the shape that its consumers expect."""
        result = self._bind_result(value)
        return result if _extents(result) == typical_shape(shape) else relax.op.reshape(result, shape)

    def _bind_result(self, value: ir.Expr) -> relax.Var:
        """Bind the result of an anchor or of its epilogue, in the shape of the template's result, to a variable."""
        result = self.builder_.emit(value)
        self._results.add(result)
        return result

    def _find_result(self, operand: ir.Expr) -> relax.Var | None:
        """Return the bound result that is an operand or was reshaped to it; None if there is none."""
        for source in (operand, self._reshape_source(operand)):
            # Without a reshape, the original variable is bound to the one that `_bind_result` emitted.
            inner = self.lookup_binding(source) if isinstance(source, relax.Var) else None
            result = next((candidate for candidate in (source, inner) if candidate in self._results), None)
            if result is not None:
                return result
        return None

    def _align(self, operand: ir.Expr, shape: Shape, anchor_shape: Shape) -> ir.Expr | None:
        """Reshape an operand that broadcasts to `shape` so it broadcasts to `anchor_shape`; None if impossible."""
        if not isinstance(operand.ty, relax.TensorType):
            return operand
        operand_shape = _extents(operand)
        if operand_shape == shape:
            return self._reshape(operand, anchor_shape)
        # Broadcasting aligns the last axes, so these must be the same in both shapes.
        suffix = tuple(dropwhile(lambda extent: extent == 1, operand_shape))
        is_compatible = shape[len(shape) - len(suffix) :] == anchor_shape[max(0, len(anchor_shape) - len(suffix)) :]
        return self._reshape(operand, suffix) if is_compatible else None

    def _reshape(self, value: ir.Expr, shape: Shape) -> ir.Expr:
        if _extents(value) == shape:
            return value
        source = self._reshape_source(value)
        value = value if source is None else source
        if _extents(value) == shape:
            return value
        return self.builder_.emit(relax.op.reshape(value, _symbolic_shape(value, shape)))

    def _reshape_source(self, value: ir.Expr) -> relax.Var | None:
        call = resolve_call(self, value, "relax.reshape")
        return None if call is None else call.args[0]


def _extents(value: ir.Expr) -> Shape:
    return tuple(extents(value))


def _symbolic_shape(value: ir.Expr, shape: Shape) -> list[Any]:
    """Replace the extents of a shape at typical sizes by products of consecutive extents of the value, if possible."""
    remaining, result = [extent for extent in value.ty.shape if size_hint(extent) != 1], []
    for size in shape:
        product: Any = 1
        while (size_hint(product) or 0) < size and remaining:
            product = remaining.pop(0) * product
        result.append(product if size_hint(product) == size else size)
    return result
