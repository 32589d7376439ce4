"""Prevent fusion of operators on a small tensor with operators that broadcast it over a large one.

Squeeze-and-excitation multiplies data by a gate per channel. If they were fused into the convolution that computes the
gate, the multiplications of all pixels would be the epilogue of a single pixel. Operators that compute a small tensor,
such as a bias from the scale of dynamically quantized data, would be repeated for each element of the large one.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.kernel_calls import Pattern, called_kernel, mark
from anole.ir.mutators import bindings, extents, rewrite

_MIN_SAVED_OPERATIONS = 1 << 17
"""Min number of saved operations for which a small tensor gets a separate kernel."""


def keep_unfused(module: tvm.IRModule) -> tvm.IRModule:
    """Mark broadcasting operators of a legalized, annotated module as injective, which prevents fusion into anchors.

    This applies to operators that broadcast a small tensor computed by an anchor; they still fuse with their consumers.
    If no anchor computes the small tensor, the broadcasting operator may fuse into the anchor of the large tensor. The
    small tensor then gets a separate kernel, by being marked as a reduction, if recomputing it takes many operations.
    """
    return rewrite(module, _Rewriter)


class _SmallTensors:
    """The small tensors that a network computes and broadcasts over larger ones.

    Attributes:
        broadcasts: the results of operators that broadcast a small tensor computed by an anchor.
        separate: the small tensors that get separate kernels.
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
        small = [var for var in self._sources(call) if _is_tensor(var) and _size(var) < _size(result)]
        if any(self._has_anchor(var) for var in small):
            self.broadcasts.add(result)
            return
        self.separate.update(var for var in small if len(self._chain(var)) * _size(result) >= _MIN_SAVED_OPERATIONS)

    def _sources(self, call: Any) -> list[relax.Var]:
        return [var for var in call.args[1].fields if isinstance(var, relax.Var) and var in self._values]

    def _is_elementwise(self, call: Any, max_pattern: int = Pattern.INJECTIVE) -> bool:
        pattern = self._pattern(call)
        return pattern is not None and pattern <= max_pattern

    def _pattern(self, call: Any) -> int | None:
        func = called_kernel(self._module, call)
        pattern = None if func is None else func.attrs.get("op_pattern")
        return None if pattern is None else int(pattern)

    def _chain(self, var: relax.Var) -> set[relax.Var]:
        """Return the results of the element-wise operators that would fuse with a consumer of a tensor."""
        results: set[relax.Var] = set()
        pending = [var]
        while pending:
            tensor = pending.pop()
            if tensor not in results and self._is_elementwise(self._values[tensor]):
                results.add(tensor)
                pending += self._sources(self._values[tensor])
        return results

    def _has_anchor(self, var: relax.Var) -> bool:
        """Whether an anchor computes a tensor, possibly with element-wise operators after it."""
        chain = self._chain(var)
        tensors: Iterable[relax.Var] = [var, *(var for result in chain for var in self._sources(self._values[result]))]
        return any(self._pattern(self._values[tensor]) == Pattern.ANCHOR for tensor in tensors)


@mutator
class _Rewriter(PyExprMutator):  # type: ignore[misc]
    """A mutator that gives each marked call its own function; calls on constants, such as a bias, may share one."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._small = _SmallTensors(module)
        self._pattern: Pattern | None = None

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._pattern = None
        if binding.var in self._small.broadcasts:
            self._pattern = Pattern.INJECTIVE
        elif binding.var in self._small.separate:
            self._pattern = Pattern.REDUCTION
        super().visit_var_binding_(binding)

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        return call if self._pattern is None else mark(self.builder_, call, self._pattern)


def _is_tensor(value: ir.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType)


def _size(value: ir.Expr) -> int:
    return prod(extents(value))
