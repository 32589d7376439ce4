"""Keeps operators that broadcast a small tensor over a large one out of the small one's loops, and the reverse.

Squeeze-and-excitation multiplies data by a gate for each channel. Fused into the convolution that computes the gate,
the product of all pixels would be the epilogue of a single one. And what computes a small tensor from others, such as a
bias from the scale of dynamically quantised data, would be computed again for each element of the large one.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

_BROADCAST = 1
INJECTIVE = 2
"""TVM's operator pattern for a function whose every result is read from known places."""
_REDUCTION = 3
"""The pattern of what fuses with what computes its operands, and not with what reads its result."""
_ANCHOR = 4

_LEAST_SAVED = 1 << 17
"""Operations from which on computing a small tensor once saves more than a kernel of its own takes."""


def keep_apart(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module, legalised and annotated, with such operators marked injective, so that no anchor fuses them.

    They still fuse with their readers, and with element-wise operators that compute the small tensor, unless these are
    so many that they are marked as a reduction. Where no anchor computes the small tensor, nothing else is marked: the
    operator is then the epilogue of the anchor that computes the large one.
    """
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            rewriter = _Rewriter(module, _Small(module, function))
            rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
            module = rewriter.builder_.get()
    return module


class _Small:
    """Finds the small tensors that a function computes and broadcasts over larger ones.

    Attributes:
        spread: the results of operators that broadcast a small tensor, computed by an anchor.
        sunk: the small tensors that are computed apart.
    """

    def __init__(self, module: tvm.IRModule, function: relax.Function) -> None:
        bindings = [binding for block in function.body.blocks for binding in block.bindings]
        self._module = module
        self._values = {binding.var: binding.value for binding in bindings}
        self.spread: set[relax.Var] = set()
        self.sunk: set[relax.Var] = set()
        for binding in bindings:
            self._note(binding.var, binding.value)

    def _note(self, result: relax.Var, call: Any) -> None:
        if not _is_tensor(result) or not self._is_elementwise(call, _BROADCAST):
            return
        small = [each for each in self._computed(call) if _is_tensor(each) and _size(each) < _size(result)]
        if any(self._has_anchor(each) for each in small):
            self.spread.add(result)
            return
        self.sunk.update(each for each in small if len(self._chain(each)) * _size(result) >= _LEAST_SAVED)

    def _computed(self, call: Any) -> list[relax.Var]:
        return [each for each in call.args[1].fields if isinstance(each, relax.Var) and each in self._values]

    def _is_elementwise(self, call: Any, most: int = INJECTIVE) -> bool:
        pattern = self._pattern(call)
        return pattern is not None and pattern <= most

    def _pattern(self, call: Any) -> int | None:
        if not isinstance(call, ir.Call) or not isinstance(call.op, ir.Op) or call.op.name != "relax.call_tir":
            return None
        pattern = self._module[call.args[0]].attrs.get("op_pattern")
        return None if pattern is None else int(pattern)

    def _chain(self, var: relax.Var) -> set[relax.Var]:
        """Returns the results of the operators that would fuse with what reads a tensor."""
        found: set[relax.Var] = set()
        waiting = [var]
        while waiting:
            each = waiting.pop()
            if each not in found and self._is_elementwise(self._values[each]):
                found.add(each)
                waiting += self._computed(self._values[each])
        return found

    def _has_anchor(self, var: relax.Var) -> bool:
        """Returns whether an anchor computes a tensor, with element-wise operators behind it."""
        chain = self._chain(var)
        read: Iterable[relax.Var] = [var, *(each for one in chain for each in self._computed(self._values[one]))]
        return any(self._pattern(self._values[each]) == _ANCHOR for each in read)


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    """Gives every such call its own function; other calls may use the same one on constants, such as a bias."""

    def __init__(self, module: tvm.IRModule, small: _Small) -> None:
        super().__init__(module)
        self._module, self._small = module, small
        self._pattern: int | None = None

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._pattern = None
        if binding.var in self._small.spread:
            self._pattern = INJECTIVE
        elif binding.var in self._small.sunk:
            self._pattern = _REDUCTION
        super().visit_var_binding_(binding)

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        if self._pattern is None:
            return call
        func = self._module[call.args[0]].with_attr("op_pattern", self._pattern)
        return relax.call_tir(self.builder_.add_func(func, call.args[0].name_hint), call.args[1], call.ty_args[0])


def _is_tensor(value: ir.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType)


def _size(value: ir.Expr) -> int:
    return prod(map(int, value.ty.shape))
