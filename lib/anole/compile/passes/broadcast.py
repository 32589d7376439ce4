"""Prevent fusion of operators on a small tensor with operators that broadcast it over a large one.

Squeeze-and-excitation multiplies data by a gate for each channel. Fused into the convolution that computes the gate,
the products of all pixels would be the epilogue of a single pixel. And operators that compute a small tensor, such as a
bias from the scale of dynamically quantized data, would be repeated for each element of the large one.
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

_MIN_SAVED_OPERATIONS = 1 << 17
"""The minimum number of saved operations for which a small tensor gets a kernel of its own."""


def keep_unfused(module: tvm.IRModule) -> tvm.IRModule:
    """Mark such operators of a legalized, annotated module as injective, which prevents their fusion into anchors.

    They still fuse with their readers, and with element-wise operators that compute the small tensor, unless these take
    so many operations that they are marked as a reduction. Where no anchor computes the small tensor, nothing else is
    marked: the operator is then the epilogue of the anchor that computes the large one.
    """
    return rewritten(module, _Rewriter)


class _Small:
    """The small tensors that a network computes and broadcasts over larger ones.

    Attributes:
        broadcasts: the results of operators that broadcast a small tensor computed by an anchor.
        separate: the small tensors that get kernels of their own.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        self._module = module
        self._values = {binding.var: binding.value for binding in bindings(module)}
        self.broadcasts: set[relax.Var] = set()
        self.separate: set[relax.Var] = set()
        for result, value in self._values.items():
            self._classify(result, value)

    def _classify(self, result: relax.Var, call: Any) -> None:
        if not _is_tensor(result) or not self._is_elementwise(call, Pattern.BROADCAST):
            return
        small = [each for each in self._computed(call) if _is_tensor(each) and _size(each) < _size(result)]
        if any(self._has_anchor(each) for each in small):
            self.broadcasts.add(result)
            return
        self.separate.update(each for each in small if len(self._chain(each)) * _size(result) >= _MIN_SAVED_OPERATIONS)

    def _computed(self, call: Any) -> list[relax.Var]:
        return [each for each in call.args[1].fields if isinstance(each, relax.Var) and each in self._values]

    def _is_elementwise(self, call: Any, max_pattern: int = Pattern.INJECTIVE) -> bool:
        pattern = self._pattern(call)
        return pattern is not None and pattern <= max_pattern

    def _pattern(self, call: Any) -> int | None:
        func = called(self._module, call)
        pattern = None if func is None else func.attrs.get("op_pattern")
        return None if pattern is None else int(pattern)

    def _chain(self, var: relax.Var) -> set[relax.Var]:
        """Return the results of the operators that would fuse with a reader of a tensor."""
        results: set[relax.Var] = set()
        waiting = [var]
        while waiting:
            each = waiting.pop()
            if each not in results and self._is_elementwise(self._values[each]):
                results.add(each)
                waiting += self._computed(self._values[each])
        return results

    def _has_anchor(self, var: relax.Var) -> bool:
        """Whether an anchor computes a tensor, possibly with element-wise operators after it."""
        chain = self._chain(var)
        operands: Iterable[relax.Var] = [var, *(each for link in chain for each in self._computed(self._values[link]))]
        return any(self._pattern(self._values[each]) == Pattern.ANCHOR for each in operands)


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    """A mutator that gives each such call its own function; calls on constants, such as a bias, may share one."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._small = _Small(module)
        self._pattern: Pattern | None = None

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._pattern = None
        if binding.var in self._small.broadcasts:
            self._pattern = Pattern.INJECTIVE
        elif binding.var in self._small.separate:
            self._pattern = Pattern.REDUCTION
        super().visit_var_binding_(binding)

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        return call if self._pattern is None else marked(self.builder_, call, self._pattern)


def _is_tensor(value: ir.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType)


def _size(value: ir.Expr) -> int:
    return prod(extents(value))
