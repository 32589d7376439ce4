"""Pass that finds attention, whether it came as an operator or as its parts, and represents it as one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import tvm.ir._ffi_api
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import bindings, operator_of, permuted_axes, read_counts, rewrite, symbolic_extents, value_of
from anole.ir.normalize_products import is_transposed_product, operands_of
from anole.ir.symbols import format_extent, simplify
from anole.task import MAX_ADDENDS

ATTENTION = "anole.attention"
"""The operator, with queries, keys, values, the order of the result's axes, whether rows are masked, and addends.

The result is the product of scores and values, with permuted axes; see `anole.task.Attention`.
"""

_RESHAPES = ("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.permute_dims")


def _result_type(call: ir.Call, _: relax.BlockBuilder) -> relax.TensorType:
    queries, _, values, axes, *_ = call.args
    shape = [*queries.ty.shape.values[:-1], values.ty.shape.values[-1]]
    return relax.TensorType([shape[int(axis)] for axis in axes.values], "float32")


tvm.ir._ffi_api.RegisterOp(ATTENTION, "Scaled dot-product attention with addends.")
ir.register_op_attr(ATTENTION, "FInferType", _result_type)
ir.register_op_attr(ATTENTION, "FPurity", True)


def fuse_attention(module: tvm.IRModule) -> tuple[tvm.IRModule, list[relax.Var]]:
    """Replace all attention; also return the variables of the queries' products with the keys.

    A permutation of the result, such as of heads and rows, becomes part of the operator.
    """
    values = {binding.var: binding.value for binding in bindings(module["main"])}
    uses = read_counts(module)
    readers = {operand: variable for variable, value in values.items() for operand in getattr(value, "args", ())}
    found = dict[relax.Var, _Parts]()
    for variable, value in values.items():
        parts = _Matcher(values, uses).match(value)
        if parts is None:
            continue
        # A reshape may insert axes of extent 1, as torch's einsum does; they are dropped.
        last, axes = variable, list(parts.axes)
        reader = readers.get(variable) if uses[variable] == 1 else None
        if operator_of(values.get(reader)) == "relax.reshape":
            axes = [axis for axis, extent in enumerate(_shape(reader)) if extent != 1]
            if [_shape(reader)[axis] for axis in axes[-2:]] == _shape(variable)[-2:]:
                last, reader = reader, readers.get(reader) if uses[reader] == 1 else None
        if operator_of(values.get(reader)) == "relax.permute_dims":
            batch = [symbolic_extents(last)[axis] for axis in axes[:-2]]
            order = _result_axes(len(axes), parts.axes[-1] < parts.axes[-2])
            order = [order[axes.index(axis)] for axis in permuted_axes(values[reader]) if axis in axes]
            found[reader] = replace(parts, batch=batch, axes=order)
        else:
            found[variable] = parts
    if not found:
        return module, []

    class Fuser(_Fuser):
        attention = found

    return rewrite(module, mutator(Fuser)), [parts.scores for parts in found.values()]


def _result_axes(rank: int, is_swapped: bool) -> list[int]:
    """Return the axes (*batch, rows, columns) of scores x values, or (*batch, columns, rows) of values x scores."""
    *batch, row, column = range(rank)
    return [*batch, column, row] if is_swapped else [*batch, row, column]


@dataclass(frozen=True)
class _Parts:
    """The parts of attention.

    Attributes:
        scores: the product of queries and keys.
        values: the values, transposed if `is_transposed`.
        outer: the batch axes of the product of scores and values.
        batch: the batch axes of the result, which may be split.
        axes: the order of the result's axes.
        masked: whether rows without a finite score have zeros as results.
        scale: the factor of the product of queries and keys.
        factors: further factors, which are equal for all rows and keys, each with the batch axes of the scores there.
        addends: tensors that are added to the scores, each with its factor and the shape of the scores there.
    """

    scores: relax.Var
    values: ir.Expr
    is_transposed: bool
    outer: Sequence[Any]
    batch: Sequence[Any]
    axes: Sequence[int]
    masked: bool
    scale: float
    factors: tuple[tuple[ir.Expr, Sequence[Any]], ...]
    addends: tuple[tuple[ir.Expr, float, Sequence[Any]], ...]


@dataclass(frozen=True)
class _Step:
    """An operator between both products: its operand that leads to the scores, and what is multiplied or added."""

    operand: ir.Expr
    scale: float = 1.0
    factor: ir.Expr | None = None
    addend: ir.Expr | None = None


@dataclass(frozen=True)
class _Matcher:
    values: Mapping[relax.Var, ir.Expr]
    uses: Mapping[relax.Var, int]

    def match(self, product: ir.Expr) -> _Parts | None:
        """Return the parts of the attention that ends with a product, or None."""
        if not _is_product(product):
            return None
        (probabilities, values), is_transposed = operands_of(product), is_transposed_product(product)
        softmax, is_masked = self._softmax(self._unshaped(probabilities))
        is_swapped = softmax is None and is_transposed
        if is_swapped:
            probabilities, values = values, probabilities
            softmax, is_masked = self._softmax(self._unshaped(probabilities))
        if softmax is None or _shape(softmax)[-2:] != _shape(probabilities)[-2:]:
            return None
        scale, factors, addends = 1.0, [], []
        variable = self._unshaped(softmax.args[0])
        # The comparison with minus infinity also reads masked scores.
        scores = self._read(variable, 2 if is_masked else 1)
        while not _is_product(scores):
            if scores is None or (step := self._step(scores)) is None:
                return None
            if step.addend is not None:
                addends.append((step.addend, scale, symbolic_extents(scores)))
            if step.factor is not None:
                factors.append((step.factor, symbolic_extents(scores)[:-2]))
            scale *= step.scale
            variable = self._unshaped(step.operand)
            scores = self._read(variable)
        outer, axes = symbolic_extents(product)[:-2], _result_axes(len(product.ty.shape), is_swapped)
        scaled = scale, tuple(factors), tuple(addends)
        parts = _Parts(variable, values, is_transposed, outer, outer, axes, is_masked, *scaled)
        return parts if self._is_supported(parts) else None

    def _is_supported(self, parts: _Parts) -> bool:
        """Whether the shapes fit, and no product is a dense layer, which packs its weights in advance."""
        scores = self.values[parts.scores]
        queries, keys = operands_of(scores)
        ranks = [len(operand.ty.shape) for operand in (queries, keys, parts.values)]
        batch = symbolic_extents(scores)[:-2]
        return (
            not any(isinstance(operand, ir.GenericConst) for operand in (keys, parts.values))
            and min(ranks) >= 2
            and max(ranks[:2]) == ranks[0]
            and ranks[2] <= len(parts.outer) + 2
            and format_extent(simplify(prod(parts.batch))) == format_extent(simplify(prod(batch)))
            and len(parts.addends) <= MAX_ADDENDS
        )

    def _softmax(self, probabilities: ir.Expr) -> tuple[Any, bool]:
        """Return the softmax of an operand, and whether rows whose scores are all minus infinity become zeros."""
        call: Any = self._read(probabilities)
        if operator_of(call) == "relax.nn.softmax":
            return (call if _is_over_last_axis(call) else None), False
        if operator_of(call) != "relax.where":
            return None, False
        condition, zeros, probabilities = call.args
        softmax: Any = self._read(probabilities, 2)
        is_zero = operator_of(self.values.get(zeros)) == "relax.full_like" and value_of(self.values[zeros].args[1]) == 0
        if operator_of(softmax) != "relax.nn.softmax" or not _is_over_last_axis(softmax) or not is_zero:
            return None, False
        for name in ("logical_not", "astype", "max", "astype", "logical_not", "equal"):
            step: Any = self.values.get(condition)
            if operator_of(step) != f"relax.{name}" or (name == "max" and not _is_over_last_axis(step)):
                return None, False
            condition, last = step.args[0], step
        is_mask = condition.same_as(softmax.args[0]) and value_of(last.args[1]) == -np.inf
        return (softmax, True) if is_mask else (None, False)

    def _step(self, scores: ir.Call) -> _Step | None:
        """Return a step between the products, or None for an operator that attention does not have."""
        name, operands = operator_of(scores), scores.args
        if name == "relax.add":
            for operand, addend in (operands, reversed(operands)):
                if _shape(operand) == _shape(scores) and self._leads_to_product(operand):
                    return _Step(operand, addend=addend)
        if name not in ("relax.multiply", "relax.divide") or _shape(operands[0]) != _shape(scores):
            return None
        factor = value_of(operands[1])
        if factor is not None and factor.size == 1 and 0 < abs(factor.item()) < np.inf:
            return _Step(operands[0], float(factor.item()) ** (1 if name == "relax.multiply" else -1))
        is_same_for_rows = name == "relax.multiply" and _shape(operands[1])[-2:] == [1, 1]
        is_first = _is_product(self._read(self._unshaped(operands[0])))
        return _Step(operands[0], factor=operands[1]) if is_same_for_rows and is_first else None

    def _leads_to_product(self, operand: ir.Expr) -> bool:
        value = self._read(self._unshaped(operand))
        if value is None or _is_product(value):
            return value is not None
        step = self._step(value)
        return step is not None and self._leads_to_product(step.operand)

    def _unshaped(self, operand: ir.Expr) -> ir.Expr:
        """Return the first value with the same elements and matrices in the same order as an operand."""
        found, shape, axes = operand, _shape(operand), list[int]()
        while (value := self._read(operand)) is not None and operator_of(value) in _RESHAPES:
            if operator_of(value) == "relax.permute_dims":
                inner = permuted_axes(value)
                axes = [inner[axis] for axis in axes or range(len(inner))]
            elif axes:
                break
            operand = value.args[0]
            moved = [axis for axis in axes if _shape(operand)[axis] != 1]
            if moved == sorted(moved):
                axes = []
                found = operand if _shape(operand)[-2:] == shape[-2:] else found
        return found

    def _read(self, operand: ir.Expr, times: int = 1) -> ir.Call | None:
        """Return the call that an operand is bound to, if it is read exactly a number of times."""
        is_read = isinstance(operand, relax.Var) and self.uses[operand] == times
        value = self.values.get(operand) if is_read else None
        return value if isinstance(value, ir.Call) and getattr(value.ty, "shape", None) is not None else None


def _is_product(call: ir.Call | None) -> bool:
    """Whether a call multiplies float32 matrices."""
    if call is None or not (operator_of(call) == "relax.matmul" or is_transposed_product(call)):
        return False
    return all(str(operand.ty.dtype) == "float32" for operand in (call, *operands_of(call)))


def _is_over_last_axis(call: ir.Call) -> bool:
    axes = call.attrs.axis if operator_of(call) == "relax.max" else [call.attrs.axis]
    return [int(axis) % len(call.ty.shape) for axis in axes] == [len(call.ty.shape) - 1]


def _shape(expr: ir.Expr) -> list[int | str]:
    """Return the shape of a tensor to compare with others, with varying extents as text."""
    return _comparable(symbolic_extents(expr))


def _comparable(extents: Sequence[Any]) -> list[int | str]:
    return [extent if isinstance(extent, int) else format_extent(extent) for extent in extents]


class _Fuser(PyExprMutator):  # type: ignore[misc]
    attention: Mapping[relax.Var, _Parts]

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._binding = binding.var
        super().visit_var_binding_(binding)

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        parts = self.attention.get(self._binding)
        if parts is None:
            return self.visit_expr_post_order(call)
        product = self.lookup_binding(self.visit_expr(parts.scores))
        queries, keys = operands_of(product)
        keys = keys if is_transposed_product(product) else self._transpose(keys)
        values = self.visit_expr(parts.values)
        values = self._transpose(values) if parts.is_transposed else values
        batch = symbolic_extents(product)[:-2]
        for factor, outer in parts.factors:
            each = self._batched(self.visit_expr(factor), outer, batch)
            queries = self.builder_.emit(relax.op.multiply(queries, each))
        queries = self._batched(self._scaled(queries, parts.scale), batch, parts.batch)
        keys = self._batched(keys, batch, parts.batch)
        values = self._batched(values, parts.outer, parts.batch)
        addends = [
            self._batched(self._scaled(self.visit_expr(addend), scale), shape, [*parts.batch, *shape[-2:]], matrix=0)
            for addend, scale, shape in parts.addends
        ]
        axes, masked = relax.ShapeExpr(list(parts.axes)), relax.const(parts.masked, "bool")
        operands = [queries, keys, values, axes, masked, *addends]
        return self._reshaped(relax.Call(ir.Op.get(ATTENTION), operands), symbolic_extents(self._binding))

    def _batched(self, expr: ir.Expr, before: Sequence[Any], after: Sequence[Any], matrix: int = 2) -> ir.Expr:
        """Broadcast an operand to axes before its last `matrix` ones, and reshape these axes."""
        inner = symbolic_extents(expr)[len(expr.ty.shape) - matrix :]
        if _shape(expr) != _comparable([*before, *inner]):
            expr = self.builder_.emit(relax.op.broadcast_to(expr, [*before, *inner]))
        return self._reshaped(expr, [*after, *inner])

    def _reshaped(self, expr: ir.Expr, shape: Sequence[Any]) -> ir.Expr:
        value = expr if isinstance(expr, relax.Var) else self.builder_.emit(expr)
        return value if _shape(value) == _comparable(shape) else self.builder_.emit(relax.op.reshape(value, shape))

    def _transpose(self, expr: ir.Expr) -> ir.Expr:
        *first, row, column = range(len(expr.ty.shape))
        return self.builder_.emit(relax.op.permute_dims(expr, [*first, column, row]))

    def _scaled(self, expr: ir.Expr, factor: float) -> ir.Expr:
        return expr if factor == 1.0 else self.builder_.emit(relax.op.multiply(expr, relax.const(factor, "float32")))
