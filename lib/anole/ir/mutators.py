"""Helpers for Relax passes: apply mutators, and look up bindings, constants and shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, relax, tirx

from anole.ir.symbols import typical_shape

_BINARY = "add subtract multiply divide maximum minimum power equal not_equal greater greater_equal less less_equal"
_UNARY = "abs astype ceil clip erf exp floor log negative round rsqrt sigmoid sqrt square tanh"
_ACTIVATIONS = "gelu gelu_tanh leakyrelu relu relu6 silu"

ELEMENTWISE = tuple(
    [f"relax.{name}" for name in f"{_BINARY} {_UNARY} where".split()]
    + [f"relax.nn.{name}" for name in _ACTIVATIONS.split()]
)
"""Elementwise operators without axis attributes."""


def rewrite(module: tvm.IRModule, mutator: Callable[[tvm.IRModule], Any]) -> tvm.IRModule:
    """Apply a `relax.PyExprMutator` to every function, and remove unused bindings."""
    visitor = mutator(module)
    for variable, function in _functions(module):
        visitor.builder_.update_func(variable, relax.analysis.remove_all_unused(visitor.visit_expr(function)))
    return visitor.builder_.get()


def _functions(module: tvm.IRModule) -> list[tuple[ir.GlobalVar, relax.Function]]:
    return [(var, function) for var, function in module.functions_items() if isinstance(function, relax.Function)]


def bindings(source: tvm.IRModule | relax.Function) -> Iterator[relax.Binding]:
    """Yield the bindings of a function, or of all functions of a module, in order."""
    functions = [function for _, function in _functions(source)] if isinstance(source, tvm.IRModule) else [source]
    for function in functions:
        for block in function.body.blocks:
            yield from block.bindings


def operator_of(expr: ir.Expr | None) -> str:
    """Return the name of the operator that an expression calls, such as ``relax.add``, or an empty string."""
    return str(expr.op.name) if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op) else ""


def with_attrs(call: ir.Call, operands: Sequence[ir.Expr], **changes: Any) -> ir.Call:
    """Copy a call with new operands and changed attributes."""
    if not changes:
        return relax.Call(call.op, operands, call.attrs)
    names = set(dir(call.attrs)) - set(dir(ir.Attrs))
    attrs = {name: getattr(call.attrs, name) for name in names} | changes
    return relax.Call(call.op, operands, ir.make_node(f"relax.attrs.{type(call.attrs).__name__}", **attrs))


def resolve(mutator: Any, expr: ir.Expr | None) -> ir.Expr | None:
    """Resolve a variable of a mutator's new function to the expression it is bound to, through other variables."""
    while isinstance(expr, relax.Var):
        expr = mutator.lookup_binding(expr)
    return expr


def resolve_if_read_once(mutator: Any, uses: Mapping[relax.Var, int], value: ir.Expr) -> Any:
    """Return the expression bound to a variable that is new or read once, see `read_counts`; None otherwise."""
    is_read_once = isinstance(value, relax.Var) and uses.get(value, 1) == 1
    return mutator.lookup_binding(value) if is_read_once else None


def resolve_call(mutator: Any, expr: ir.Expr, operator: str) -> ir.Call | None:
    """Return the call of this operator that an expression is bound to, or None."""
    call = resolve(mutator, expr)
    return call if operator_of(call) == operator else None


def variables(expr: ir.Expr) -> list[relax.Var]:
    """Return the variables of an expression, with repetitions."""
    result: list[relax.Var] = []
    relax.analysis.post_order_visit(expr, lambda node: result.append(node) if isinstance(node, relax.Var) else None)
    return result


def read_counts(module: tvm.IRModule) -> Counter[relax.Var]:
    """Count how often the bindings and results of all functions read each variable."""
    values = [binding.value for binding in bindings(module)]
    results = [function.body.body for _, function in _functions(module)]
    return Counter(var for expr in (*values, *results) for var in variables(expr))


def extents(expr: ir.Expr) -> list[int]:
    """Return a tensor's shape at typical sizes; empty for scalars, unknown shapes and other expressions."""
    return list(typical_shape(getattr(expr.ty, "shape", None)) or ())


def symbolic_extents(expr: ir.Expr) -> list[Any]:
    """Return a tensor's shape, with fixed extents as integers and varying ones as expressions."""
    return [int(extent) if isinstance(extent, tirx.IntImm) else extent for extent in expr.ty.shape.values]


def permuted_axes(call: ir.Call) -> list[int]:
    """Return the axes of a call of `relax.op.permute_dims`, in their new order."""
    rank = len(call.ty.shape)
    return [int(axis) % rank for axis in call.attrs.axes or reversed(range(rank))]


def resolve_value(mutator: Any, expr: ir.Expr) -> NDArray[Any] | None:
    """Return the value of the constant that an expression is bound to in a mutator's new function, or None."""
    value = resolve(mutator, expr)
    return value_of(expr if value is None else value)


def value_of(expr: ir.Expr) -> NDArray[Any] | None:
    """Return the read-only value of a constant or static shape, or None for all other expressions."""
    if isinstance(expr.ty, relax.ShapeType) and all(isinstance(extent, tirx.IntImm) for extent in expr.ty.values):
        return np.array([int(extent) for extent in expr.ty.values], np.int64)
    if isinstance(expr, (tirx.FloatImm, tirx.IntImm)):
        return np.array(expr.value, str(expr.ty.dtype))
    if isinstance(expr, ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor):
        return _view(expr.value)
    return None


def _view(tensor: tvm.runtime.Tensor) -> NDArray[Any]:
    """View a tensor as an array; copy it only if NumPy does not support its dtype, since copying takes minutes."""
    try:
        array = np.from_dlpack(tensor)
    except (BufferError, RuntimeError):
        return cast(NDArray[Any], tensor.numpy())
    array.flags.writeable = False
    return array
