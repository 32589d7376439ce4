"""Helpers for passes: apply a mutator to all functions, and look up bindings and shapes inside one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import ir, relax, tirx

_BINARY = "add subtract multiply divide maximum minimum power equal not_equal greater greater_equal less less_equal"
_UNARY = "abs astype ceil clip erf exp floor log negative round rsqrt sigmoid sqrt square tanh"
_ACTIVATIONS = "gelu gelu_tanh leakyrelu relu relu6 silu"

ELEMENTWISE = tuple(
    [f"relax.{name}" for name in f"{_BINARY} {_UNARY} where".split()]
    + [f"relax.nn.{name}" for name in _ACTIVATIONS.split()]
)
"""Operators that treat every element alike, wherever it lies, and whose attributes name no axis."""


def rewritten(module: tvm.IRModule, mutator: type[Any]) -> tvm.IRModule:
    """Returns the module with every function rewritten by a mutator and unused bindings removed.

    Args:
        module: the network's module.
        mutator: a `relax.PyExprMutator` class; it is instantiated with the module.
    """
    visitor = mutator(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            visitor.builder_.update_func(variable, relax.analysis.remove_all_unused(visitor.visit_expr(function)))
    return visitor.builder_.get()


def bound(mutator: Any, expr: ir.Expr | None) -> ir.Expr | None:
    """Returns the expression that a variable is bound to, following variables bound to variables.

    Args:
        mutator: the mutator whose new function contains the variable.
        expr: a variable; any other expression is returned as it is.
    """
    while isinstance(expr, relax.Var):
        expr = mutator.lookup_binding(expr)
    return expr


def bound_for_one(mutator: Any, uses: Mapping[relax.Var, int], value: ir.Expr) -> Any:
    """Returns the expression bound to a variable that is read only once, or that the mutator made; None for others.

    Args:
        mutator: the mutator whose new function contains the variable.
        uses: how often each variable is read, see `read_counts`.
        value: a variable; None is returned for any other expression.
    """
    is_read_once = isinstance(value, relax.Var) and uses.get(value, 1) == 1
    return mutator.lookup_binding(value) if is_read_once else None


def bound_call(mutator: Any, expr: ir.Expr, operator: str) -> ir.Call | None:
    """Returns the call that an expression is bound to, or None if it is not a call of that operator."""
    call = bound(mutator, expr)
    return call if isinstance(call, ir.Call) and call.op == ir.Op.get(operator) else None


def variables(expr: ir.Expr) -> list[relax.Var]:
    """Returns the variables of an expression, each as often as it occurs."""
    found: list[relax.Var] = []
    relax.analysis.post_order_visit(expr, lambda each: found.append(each) if isinstance(each, relax.Var) else None)
    return found


def read_counts(module: tvm.IRModule) -> Counter[relax.Var]:
    """Returns how often the bindings and results of all functions read each variable."""
    functions = [func for _, func in module.functions_items() if isinstance(func, relax.Function)]
    bindings = [binding for func in functions for block in func.body.blocks for binding in block.bindings]
    counts = Counter(var for binding in bindings for var in variables(binding.value))
    counts.update(var for func in functions for var in variables(func.body.body))
    return counts


def extents(expr: ir.Expr) -> list[int]:
    """Returns a tensor's shape; an empty list for scalars, unknown shapes and expressions that are no tensors."""
    shape = getattr(expr.ty, "shape", None) or ()
    return [int(extent) for extent in shape] if all(isinstance(extent, tirx.IntImm) for extent in shape) else []
