"""Swaps permutations with what changes the size of images, so that the smaller one is permuted or none."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import tvm
from tvm import ir, relax
from tvm.relax.dpl import DFPattern, is_op, rewrite_call, wildcard
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.mutators import bound_for_one, extents, read_counts, rewritten

_TO_CHANNELS_FIRST = [0, 3, 1, 2]


def mean_before_permuting(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module with means taken over the original axes wherever the order of the other axes stays.

    Global pooling then reads channels in their own layout.
    """
    data = wildcard()
    permute = is_op("relax.permute_dims")(data)
    mean = is_op("relax.mean")(permute)

    def swap(call: ir.Call, found: Mapping[DFPattern, ir.Expr]) -> ir.Expr:
        rank = len(call.args[0].ty.shape)
        order = [int(axis) for axis in found[permute].attrs.axes or reversed(range(rank))]
        reduced = {int(axis) % rank for axis in call.attrs.axis} if call.attrs.axis else set(range(rank))
        kept = [axis for position, axis in enumerate(order) if position not in reduced]
        if kept != sorted(kept):
            return call
        means = relax.op.mean(found[data], sorted(order[position] for position in reduced))
        return relax.op.reshape(means, call.ty.shape)

    changed = module.clone()
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            changed[variable] = rewrite_call(mean, swap, function)
    return changed


def permute_before_enlarging(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module with images that are enlarged and then laid out with channels first permuted before that."""
    return rewritten(module, _Permuter)


@mutator
class _Permuter(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._uses = read_counts(module)

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        if call.op != ir.Op.get("relax.permute_dims") or [*map(int, call.attrs.axes or ())] != _TO_CHANNELS_FIRST:
            return call
        resize = bound_for_one(self, self._uses, call.args[0])
        if not isinstance(resize, ir.Call) or resize.op != ir.Op.get("relax.image.resize2d"):
            return call
        data, size = resize.args
        if str(resize.attrs.layout) != "NHWC" or prod(extents(data)) >= prod(extents(call)):
            return call
        permuted = self.builder_.emit(relax.op.permute_dims(data, _TO_CHANNELS_FIRST))
        names = set(dir(resize.attrs)) - set(dir(ir.Attrs))
        attrs = {name: getattr(resize.attrs, name) for name in names} | {"layout": "NCHW"}
        return relax.Call(resize.op, [permuted, size], ir.make_node("relax.attrs.Resize2DAttrs", **attrs))
