"""How passes over a network's functions are applied."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax


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
