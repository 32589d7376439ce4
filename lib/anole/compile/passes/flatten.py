"""Reshape the operators after an anchor to the shape of its template's result, which lets them fuse.

A dense layer on (batch, sequence, features) data is computed on flat rows. If its result were reshaped back at once,
bias and activation would become a separate function. Images may also be reshaped to tokens before a residual is added.
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
from anole.ir.mutators import ELEMENTWISE, extents, resolve_call, rewritten
from anole.ir.normalize_products import is_transposed_product, operands_of, transposed_product
from anole.ir.symbols import size_hint, typical_shape
from anole.targets.shared.reference import data_shape, weight_shape
from anole.task import Conv2d, Workload

Shape = tuple[int, ...]


def flatten_products(module: tvm.IRModule) -> tvm.IRModule:
    """Flatten matrix products, keep epilogues in the shape of their anchor, and reshape back after them."""
    return rewritten(module, _Flattener)


@mutator
class _Flattener(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._flat: set[relax.Var] = set()

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if not isinstance(call.op, ir.Op):
            return call
        if call.op.name in ELEMENTWISE:
            return self._flatten_elementwise(call)
        workload = workload_of(call)
        if workload is None:
            return call
        return self._bind_flat(call) if isinstance(workload, Conv2d) else self._flatten_product(call, workload)

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
        """Apply an operator to flat values instead of reshaped ones."""
        shape = _extents(call)
        flat = next((flat for operand in call.args if (flat := self._flat_form(operand)) is not None), None)
        if flat is None or prod(_extents(flat)) != prod(shape):
            return call
        operands = [self._align(operand, shape, _extents(flat)) for operand in call.args]
        if any(operand is None for operand in operands):
            return call
        return self._reshape_back(ir.Call(call.op, operands, call.attrs), call.ty.shape)

    def _reshape_back(self, value: ir.Expr, shape: Any) -> ir.Expr:
        """Reshape a flat value to the shape that its consumers expect."""
        flat = self._bind_flat(value)
        return flat if _extents(flat) == typical_shape(shape) else relax.op.reshape(flat, shape)

    def _bind_flat(self, value: ir.Expr) -> relax.Var:
        """Bind the result of an anchor or of its epilogue to a variable."""
        flat = self.builder_.emit(value)
        self._flat.add(flat)
        return flat

    def _flat_form(self, operand: ir.Expr) -> relax.Var | None:
        """Return the flat value that is an operand or was reshaped to it; None if there is none."""
        for source in (operand, self._reshape_source(operand)):
            # A result that needs no reshape has two variables.
            inner = self.lookup_binding(source) if isinstance(source, relax.Var) else None
            flat = next((candidate for candidate in (source, inner) if candidate in self._flat), None)
            if flat is not None:
                return flat
        return None

    def _align(self, operand: ir.Expr, shape: Shape, flat: Shape) -> ir.Expr | None:
        """Convert an operand for a result with this shape to one for the flat result; None if that is impossible."""
        if not isinstance(operand.ty, relax.TensorType):
            return operand
        operand_shape = _extents(operand)
        if operand_shape == shape:
            return self._reshape(operand, flat)
        core = tuple(dropwhile(lambda extent: extent == 1, operand_shape))
        is_compatible = shape[len(shape) - len(core) :] == flat[max(0, len(flat) - len(core)) :]
        return self._reshape(operand, core) if is_compatible else None

    def _reshape(self, value: ir.Expr, shape: Shape) -> ir.Expr:
        if _extents(value) == shape:
            return value
        source = self._reshape_source(value)
        value = value if source is None else source
        return value if _extents(value) == shape else self.builder_.emit(relax.op.reshape(value, _merge(value, shape)))

    def _reshape_source(self, value: ir.Expr) -> relax.Var | None:
        call = resolve_call(self, value, "relax.reshape")
        return None if call is None else call.args[0]


def _extents(value: ir.Expr) -> Shape:
    return tuple(extents(value))


def _merge(value: ir.Expr, shape: Shape) -> list[Any]:
    """Express a shape, given at typical sizes, by products of a value's own extents, which may vary."""
    remaining, result = [extent for extent in value.ty.shape if size_hint(extent) != 1], []
    for size in shape:
        product: Any = 1
        while (size_hint(product) or 0) < size and remaining:
            product = remaining.pop(0) * product
        result.append(product if size_hint(product) == size else size)
    return result
