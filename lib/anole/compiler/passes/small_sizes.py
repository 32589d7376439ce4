"""Merge two programs into each kernel of a network with size ranges: one for small sizes and one for all others.

Both read the same weights, unless the weights for small sizes are packed differently; the kernel then gets both.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.kernel_calls import anchor_workload, calls_of, is_kernel
from anole.ir.mutators import rewrite
from anole.ir.nodes import with_values
from anole.ir.symbols import is_small, symbols_in, symbols_of, typical_shape

SMALL_WEIGHTS = "small_weights"
"""The name of a parameter that only the program for small sizes reads."""


def with_small_sizes(module: tvm.IRModule, small: tvm.IRModule) -> tvm.IRModule:
    """Extend a lowered module's kernels by programs for small sizes from another module of the same network.

    Only the other module's scheduled anchors are used. If the modules do not call the same kernels in the same order,
    the first one is returned unchanged.
    """
    pairs = list(zip(calls_of(module), calls_of(small), strict=False))
    has_same_arity = all(len(call.args[1].fields) == len(small_call.args[1].fields) for call, small_call in pairs)
    if not has_same_arity or not len(pairs) == len(calls_of(module)) == len(calls_of(small)):
        return module
    return relax.transform.DeadCodeElimination()(rewrite(module, partial(_Merger, small=small)))


@mutator
class _Merger(PyExprMutator):  # type: ignore[misc]
    """A mutator that replaces the called kernels, and also passes them the weights that only small sizes use."""

    def __init__(self, module: tvm.IRModule, small: tvm.IRModule) -> None:
        super().__init__(module)
        self._module, self._small = module, small
        self._small_calls = iter(calls_of(small))
        self._merged: dict[ir.GlobalVar, ir.GlobalVar] = {}

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        if not is_kernel(call):
            return call
        kernel, operands, *rest = call.args
        small_kernel, small_inputs, *_ = next(self._small_calls).args
        func, small = self._module[kernel], self._small[small_kernel]
        is_same = anchor_workload(small) is None or tvm_ffi.structural_equal(func.body, small.body, map_free_vars=True)
        if is_same or not symbols_of(func):
            return call
        fields = zip(operands.fields, small_inputs.fields, strict=True)
        extra = [weights for input_, weights in fields if not _has_same_shape(input_, weights)]
        if kernel not in self._merged:
            merged = _branch_on_size(small, func, len(operands.fields))
            self._merged[kernel] = self.builder_.add_func(merged, kernel.name_hint)
        inputs = relax.Tuple([*operands.fields, *extra])
        return ir.Call(call.op, [self._merged[kernel], inputs, *rest], call.attrs, call.ty_args)


def _has_same_shape(left: Any, right: Any) -> bool:
    """Whether two tensors or parameters have the same shape."""
    shapes = [getattr(operand.ty, "shape", None) for operand in (left, right)]
    return shapes == [None, None] or typical_shape(shapes[0]) == typical_shape(shapes[1])


def _branch_on_size(small: tirx.PrimFunc, func: tirx.PrimFunc, n_inputs: int) -> tirx.PrimFunc:
    """Return a function that runs `small` for small sizes, and `func` otherwise."""
    values: dict[Any, Any] = {}
    extra: list[Any] = []
    for small_param, param in zip(small.params, func.params, strict=True):
        if _has_same_shape(small_param, param):
            values[small_param] = param
            # Several symbols may have the same name.
            values |= dict(zip(symbols_in(small_param.ty), symbols_in(param.ty), strict=True))
        else:
            values[small_param] = tirx.decl_buffer(list(small_param.ty.shape), small_param.ty.dtype, SMALL_WEIGHTS)
            extra.append(values[small_param])
    body = tirx.IfThenElse(is_small(symbols_of(func)), with_values(small.body, values), func.body)
    root = s_tir.SBlock([], [], [], func.body.block.name_hint, body)
    params = [*func.params[:n_inputs], *extra, *func.params[n_inputs:]]
    return tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root), attrs=func.attrs)
