"""Kernels with two programs, where sizes vary: one for small sizes and one for all others.

Both read the same weights, unless those of the small sizes are packed in another way; then the kernel gets both.
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
"""The name of a parameter that only the program of small sizes reads."""


def with_small_sizes(module: tvm.IRModule, small: tvm.IRModule) -> tvm.IRModule:
    """Return a lowered module whose kernels compute small sizes as those of another module of the same network do.

    Only the other module's scheduled anchors count. If it does not call the same kernels in the same order, the module
    stays as it is.
    """
    pairs = list(zip(calls_of(module), calls_of(small), strict=False))
    alike = all(len(one.args[1].fields) == len(other.args[1].fields) for one, other in pairs)
    if not alike or not len(pairs) == len(calls_of(module)) == len(calls_of(small)):
        return module
    return relax.transform.DeadCodeElimination()(rewritten(module, partial(_Merger, small=small)))


@mutator
class _Merger(PyExprMutator):  # type: ignore[misc]
    """Replaces the called kernels, and gives them the weights that only small sizes read, too."""

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
        other, theirs, *_ = next(self._others).args
        func, few = self._module[kernel], self._small[other]
        is_same = anchored(few) is None or tvm_ffi.structural_equal(func.body, few.body, map_free_vars=True)
        if is_same or not symbols_of(func):
            return call
        fields = zip(given.fields, theirs.fields, strict=True)
        extra = [weights for mine, weights in fields if not _is_alike(mine, weights)]
        if kernel not in self._merged:
            merged = _either(few, func, len(given.fields))
            self._merged[kernel] = self.builder_.add_func(merged, kernel.name_hint)
        inputs = relax.Tuple([*given.fields, *extra])
        return ir.Call(call.op, [self._merged[kernel], inputs, *rest], call.attrs, call.ty_args)


def _is_alike(one: Any, other: Any) -> bool:
    """Whether two tensors, or parameters, have the same shape."""
    shapes = [getattr(each.ty, "shape", None) for each in (one, other)]
    return shapes == [None, None] or typical_shape(shapes[0]) == typical_shape(shapes[1])


def _either(small: tirx.PrimFunc, func: tirx.PrimFunc, n_inputs: int) -> tirx.PrimFunc:
    """Return a function that takes the way of the first one for small sizes, and else that of the second."""
    own: dict[Any, Any] = {}
    extra: list[Any] = []
    for mine, theirs in zip(small.params, func.params, strict=True):
        if _is_alike(mine, theirs):
            own[mine] = theirs
            # One name may have several symbols.
            own |= dict(zip(symbols_in(mine.ty), symbols_in(theirs.ty), strict=True))
        else:
            own[mine] = tirx.decl_buffer(list(mine.ty.shape), mine.ty.dtype, SMALL_WEIGHTS)
            extra.append(own[mine])
    body = tirx.IfThenElse(is_small(symbols_of(func)), with_values(small.body, own), func.body)
    root = s_tir.SBlock([], [], [], func.body.block.name_hint, body)
    params = [*func.params[:n_inputs], *extra, *func.params[n_inputs:]]
    return tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root), attrs=func.attrs)
