"""Keeps operators that broadcast a small tensor over a large one out of the small one's loops.

Squeeze-and-excitation multiplies data by a gate for each channel. Fused into the convolution that computes the gate,
the product of all pixels would be the epilogue of a single one.
"""

from __future__ import annotations

from math import prod

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

_BROADCAST = 1
INJECTIVE = 2
"""TVM's operator pattern for a function whose every result is read from known places."""


def keep_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module, legalised and annotated, with such operators marked injective, so that no anchor fuses them.

    They still fuse with their readers, and with element-wise operators that compute the small tensor.
    """
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            rewriter = _Rewriter(module, set(function.params))
            rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
            module = rewriter.builder_.get()
    return module


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    """Gives every such call its own function; other calls may use the same one on constants, such as a bias."""

    def __init__(self, module: tvm.IRModule, given: set[relax.Var]) -> None:
        super().__init__(module)
        self._module, self._given = module, given

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        if not (isinstance(call.op, ir.Op) and call.op.name == "relax.call_tir" and self._spreads(call)):
            return call
        func = self._module[call.args[0]].with_attr("op_pattern", INJECTIVE)
        return relax.call_tir(self.builder_.add_func(func, call.args[0].name_hint), call.args[1], call.ty_args[0])

    def _spreads(self, call: ir.Call) -> bool:
        pattern = self._module[call.args[0]].attrs.get("op_pattern")
        if pattern is None or int(pattern) > _BROADCAST or not isinstance(call.ty, relax.TensorType):
            return False
        computed = (each for each in call.args[1].fields if isinstance(each, relax.Var) and each not in self._given)
        return any(_size(operand) < _size(call) for operand in computed)


def _size(value: ir.Expr) -> int:
    return prod(map(int, value.ty.shape))
