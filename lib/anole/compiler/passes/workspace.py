"""Plan workspaces, the buffers between the kernels of one function, together with the network's tensors.

Otherwise such a function would allocate them on every run, from a pool that may free a page to get a larger one. A
network recorded as a CUDA graph would then keep writing to the freed address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import ir, relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import rewrite
from anole.ir.nodes import collect

_CALL_TIR = "relax.call_tir"
_CALL_TIR_INPLACE = "relax.call_tir_inplace"


def lift_workspaces(module: tvm.IRModule) -> tvm.IRModule:
    """Turn the buffers between the kernels of each function of a scheduled module into additional, unread results.

    Functions that launch no kernels are not changed.
    """
    return relax.transform.DeadCodeElimination()(rewrite(module, _Lifter))


def _workspaces(func: tirx.PrimFunc) -> list[Any]:
    """Return the global-memory buffers that a function allocates around its kernels."""
    if not any(loop.kind == tirx.ForKind.THREAD_BINDING for loop in collect(func.body, tirx.For)):
        return []
    return [buffer for buffer in func.body.block.alloc_buffers if buffer.scope() == "global"]


def _with_parameters(func: tirx.PrimFunc, buffers: Sequence[Any]) -> tirx.PrimFunc:
    """Turn buffers that a function allocates into its last parameters."""
    root = func.body.block
    remaining = [buffer for buffer in root.alloc_buffers if not any(buffer.same_as(lifted) for lifted in buffers)]
    block = s_tir.SBlock([], [], [], root.name_hint, root.body, alloc_buffers=remaining, annotations=root.annotations)
    return tirx.PrimFunc([*func.params, *buffers], s_tir.SBlockRealize([], True, block), attrs=func.attrs)


@mutator
class _Lifter(PyExprMutator):  # type: ignore[misc]
    """A mutator that adds the workspaces of called functions as results, and keeps only the original results."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._module = module
        self._workspaces = {
            variable: _workspaces(func)
            for variable, func in module.functions_items()
            if isinstance(func, tirx.PrimFunc)
        }

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        name = call.op.name if isinstance(call.op, ir.Op) else ""
        buffers = self._workspaces.get(call.args[0], ()) if name in (_CALL_TIR, _CALL_TIR_INPLACE) else ()
        if not buffers:
            return call
        func = _with_parameters(self._module[call.args[0]], buffers)
        variable = self.builder_.add_func(func, call.args[0].name_hint)
        (original_type,) = call.ty_args
        result_types = list(original_type.fields) if isinstance(original_type, ir.TupleType) else [original_type]
        results = [*result_types, *(relax.TensorType(list(buffer.shape), buffer.dtype) for buffer in buffers)]
        if name == _CALL_TIR:
            new_call = relax.call_tir(variable, call.args[1], results)
        else:
            inplace_indices = [*map(int, call.attrs.inplace_indices), *(-1 for _ in buffers)]
            new_call = relax.op.call_tir_inplace(variable, call.args[1], inplace_indices, results)
        tensors = self.builder_.emit(new_call)
        if not isinstance(original_type, ir.TupleType):
            return relax.TupleGetItem(tensors, 0)
        return relax.Tuple([relax.TupleGetItem(tensors, index) for index in range(len(result_types))])
