"""Merge two programs into each kernel whose sizes vary: one for small sizes and one for all others.

Both read the same weights, unless the weights for small sizes are packed differently; the kernel then gets both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.kernel_calls import anchored, calls_of, is_kernel
from anole.ir.mutators import rewritten
from anole.ir.nodes import with_values
from anole.ir.symbols import is_small, symbols_in, symbols_of, typical_shape

SMALL_WEIGHTS = "small_weights"
"""The name of a parameter that only the program for small sizes reads."""


def with_small_sizes(module: tvm.IRModule, small: tvm.IRModule) -> tvm.IRModule:
    """Extend a lowered module's kernels by programs for small sizes from another module of the same network.

    Only the other module's scheduled anchors are used. If it does not call the same kernels in the same order, the
    module is returned unchanged.
    """
    pairs = list(zip(calls_of(module), calls_of(small), strict=False))
    has_same_inputs = all(len(one.args[1].fields) == len(other.args[1].fields) for one, other in pairs)
    if not has_same_inputs or not len(pairs) == len(calls_of(module)) == len(calls_of(small)):
        return module
    return relax.transform.DeadCodeElimination()(rewritten(module, partial(_Merger, small=small)))


@mutator
class _Merger(PyExprMutator):  # type: ignore[misc]
    """A mutator that replaces the called kernels, and also passes them the weights that only small sizes read."""

    def __init__(self, module: tvm.IRModule, small: tvm.IRModule) -> None:
        super().__init__(module)
        self._module, self._small = module, small
        self._others = iter(calls_of(small))
        self._merged: dict[ir.GlobalVar, ir.GlobalVar] = {}

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        if not is_kernel(call):
            return call
        kernel, given, *rest = call.args
        other, small_given, *_ = next(self._others).args
        func, small = self._module[kernel], self._small[other]
        is_same = anchored(small) is None or tvm_ffi.structural_equal(func.body, small.body, map_free_vars=True)
        if is_same or not symbols_of(func):
            return call
        fields = zip(given.fields, small_given.fields, strict=True)
        extra = [weights for mine, weights in fields if not _has_same_shape(mine, weights)]
        if kernel not in self._merged:
            merged = _branching(small, func, len(given.fields))
            self._merged[kernel] = self.builder_.add_func(merged, kernel.name_hint)
        inputs = relax.Tuple([*given.fields, *extra])
        return ir.Call(call.op, [self._merged[kernel], inputs, *rest], call.attrs, call.ty_args)


def _has_same_shape(one: Any, other: Any) -> bool:
    """Whether two tensors or parameters have the same shape."""
    shapes = [getattr(each.ty, "shape", None) for each in (one, other)]
    return shapes == [None, None] or typical_shape(shapes[0]) == typical_shape(shapes[1])


def _branching(small: tirx.PrimFunc, func: tirx.PrimFunc, n_inputs: int) -> tirx.PrimFunc:
    """Return a function that branches to the first one for small sizes, and to the second one otherwise."""
    replaced: dict[Any, Any] = {}
    extra: list[Any] = []
    for small_param, param in zip(small.params, func.params, strict=True):
        if _has_same_shape(small_param, param):
            replaced[small_param] = param
            # Several symbols may have the same name.
            replaced |= dict(zip(symbols_in(small_param.ty), symbols_in(param.ty), strict=True))
        else:
            replaced[small_param] = tirx.decl_buffer(list(small_param.ty.shape), small_param.ty.dtype, SMALL_WEIGHTS)
            extra.append(replaced[small_param])
    body = tirx.IfThenElse(is_small(symbols_of(func)), with_values(small.body, replaced), func.body)
    root = s_tir.SBlock([], [], [], func.body.block.name_hint, body)
    params = [*func.params[:n_inputs], *extra, *func.params[n_inputs:]]
    return tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root), attrs=func.attrs)
