"""Operators whose places and axes are said plainly, as passes and schedules expect them to be."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.fold import value_of


def speak_plainly(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module with squeezed axes counted from the front, and slices for what is taken at a constant index.

    Converting the layout crashes on an axis counted from the back. What is taken is looked up element by element.
    """
    speaker = _Speaker(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            speaker.builder_.update_func(variable, relax.analysis.remove_all_unused(speaker.visit_expr(function)))
    return speaker.builder_.get()


def _squeeze(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    if call.attrs.axis is None:
        return call
    rank = len(call.args[0].ty.shape)
    return relax.op.squeeze(call.args[0], [int(axis) % rank for axis in call.attrs.axis])


def _take(builder: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    data, index = call.args[0], value_of(call.args[1])
    if call.attrs.axis is None or index is None or index.ndim:
        return call
    axis = int(call.attrs.axis) % len(data.ty.shape)
    place = int(index) % int(data.ty.shape[axis])
    piece = builder.emit(relax.op.strided_slice(data, [axis], [place], [place + 1]))
    return relax.op.squeeze(piece, [axis])


_PLAIN: dict[str, Callable[[relax.BlockBuilder, ir.Call], ir.Expr]] = {"relax.squeeze": _squeeze, "relax.take": _take}


@mutator
class _Speaker(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        say = _PLAIN.get(call.op.name) if isinstance(call.op, ir.Op) else None
        return call if say is None else say(self.builder_, call)
