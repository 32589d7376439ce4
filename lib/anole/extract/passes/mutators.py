"""How passes over a network's functions are applied, and what they ask of a function that they are at."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, relax, tirx

_BINARY = "add subtract multiply divide maximum minimum power equal not_equal greater greater_equal less less_equal"
_UNARY = "abs astype clip erf exp log negative rsqrt sigmoid sqrt square tanh"
_ACTIVATIONS = "gelu gelu_tanh leakyrelu relu relu6 silu"

ELEMENTWISE = tuple(
    [f"relax.{name}" for name in f"{_BINARY} {_UNARY} where".split()]
    + [f"relax.nn.{name}" for name in _ACTIVATIONS.split()]
)
"""Operators that do the same to every element, wherever it is, and whose attributes name no axis."""


def rewritten(module: tvm.IRModule, mutator: type[Any]) -> tvm.IRModule:
    """Returns the module with every function as a mutator leaves it, without what is no longer used.

    Args:
        module: of the network.
        mutator: a `relax.PyExprMutator`, which is made for the module.
    """
    visitor = mutator(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            visitor.builder_.update_func(variable, relax.analysis.remove_all_unused(visitor.visit_expr(function)))
    return visitor.builder_.get()


def bound(mutator: Any, expr: ir.Expr | None) -> ir.Expr | None:
    """Returns what a variable stands for, through all others that it is only another name of.

    Args:
        mutator: whose new function it is of.
        expr: a variable, or what stands for itself.
    """
    while isinstance(expr, relax.Var):
        expr = mutator.lookup_binding(expr)
    return expr


def bound_call(mutator: Any, expr: ir.Expr, operator: str) -> ir.Call | None:
    """Returns the call that an expression stands for, or None where it is none of that operator."""
    call = bound(mutator, expr)
    return call if isinstance(call, ir.Call) and call.op == ir.Op.get(operator) else None


def variables(expr: ir.Expr) -> list[relax.Var]:
    """Returns the variables of an expression, each as often as it occurs."""
    found: list[relax.Var] = []
    relax.analysis.post_order_visit(expr, lambda each: found.append(each) if isinstance(each, relax.Var) else None)
    return found


def extents(expr: ir.Expr) -> list[int]:
    """Returns the shape of a tensor; nothing where it is not known, of a scalar and of what is no tensor."""
    shape = getattr(expr.ty, "shape", None) or ()
    return [int(extent) for extent in shape] if all(isinstance(extent, tirx.IntImm) for extent in shape) else []
