"""Takes means before permutations, so that global pooling reads channels in their own layout."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import ir, relax
from tvm.relax.dpl import DFPattern, is_op, rewrite_call, wildcard


def mean_before_permuting(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module with means taken over the original axes wherever the order of the other axes stays."""
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
