"""Keeps operators that broadcast a small tensor over a large one out of the small one's loops, and the reverse.

Squeeze-and-excitation multiplies data by a gate for each channel. Fused into the convolution that computes the gate,
the product of all pixels would be the epilogue of a single one. And what computes a small tensor from others, such as a
bias from the scale of dynamically quantized data, would be computed again for each element of the large one.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.kernel_calls import Pattern, bindings, called, marked
from anole.ir.mutators import extents, rewritten

_MIN_SAVED_BYTES = 1 << 17
"""Operations from which on computing a small tensor once saves more than a kernel of its own takes."""


def keep_unfused(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module, legalized and annotated, with such operators marked injective, so that no anchor fuses them.

    They still fuse with their readers, and with element-wise operators that compute the small tensor, unless these are
    so many that they are marked as a reduction. Where no anchor computes the small tensor, nothing else is marked: the
    operator is then the epilogue of the anchor that computes the large one.
    """
    return rewritten(module, _Rewriter)


class _Small:
    """Finds the small tensors that a network computes and broadcasts over larger ones.

    Attributes:
        spread: the results of operators that broadcast a small tensor, computed by an anchor.
        sunk: the small tensors that are computed apart.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        self._module = module
        self._values = {binding.var: binding.value for binding in bindings(module)}
        self.spread: set[relax.Var] = set()
        self.sunk: set[relax.Var] = set()
        for result, value in self._values.items():
            self._note(result, value)

    def _note(self, result: relax.Var, call: Any) -> None:
        if not _is_tensor(result) or not self._is_elementwise(call, Pattern.BROADCAST):
            return
        small = [each for each in self._computed(call) if _is_tensor(each) and _size(each) < _size(result)]
        if any(self._has_anchor(each) for each in small):
            self.spread.add(result)
            return
        self.sunk.update(each for each in small if len(self._chain(each)) * _size(result) >= _MIN_SAVED_BYTES)

    def _computed(self, call: Any) -> list[relax.Var]:
        return [each for each in call.args[1].fields if isinstance(each, relax.Var) and each in self._values]

    def _is_elementwise(self, call: Any, most: int = Pattern.INJECTIVE) -> bool:
        pattern = self._pattern(call)
        return pattern is not None and pattern <= most

    def _pattern(self, call: Any) -> int | None:
        func = called(self._module, call)
        pattern = None if func is None else func.attrs.get("op_pattern")
        return None if pattern is None else int(pattern)

    def _chain(self, var: relax.Var) -> set[relax.Var]:
        """Return the results of the operators that would fuse with what reads a tensor."""
        found: set[relax.Var] = set()
        waiting = [var]
        while waiting:
            each = waiting.pop()
            if each not in found and self._is_elementwise(self._values[each]):
                found.add(each)
                waiting += self._computed(self._values[each])
        return found

    def _has_anchor(self, var: relax.Var) -> bool:
        """Whether an anchor computes a tensor, with element-wise operators behind it."""
        chain = self._chain(var)
        read: Iterable[relax.Var] = [var, *(each for one in chain for each in self._computed(self._values[one]))]
        return any(self._pattern(self._values[each]) == Pattern.ANCHOR for each in read)


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    """Gives every such call its own function; other calls may use the same one on constants, such as a bias."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._small = _Small(module)
        self._pattern: Pattern | None = None

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._pattern = None
        if binding.var in self._small.spread:
            self._pattern = Pattern.INJECTIVE
        elif binding.var in self._small.sunk:
            self._pattern = Pattern.REDUCTION
        super().visit_var_binding_(binding)

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        return call if self._pattern is None else marked(self.builder_, call, self._pattern)


def _is_tensor(value: ir.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType)


def _size(value: ir.Expr) -> int:
    return prod(extents(value))
