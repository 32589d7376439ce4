"""Removes copies that only change how data is viewed: permutations that undo each other, and slices of permuted data.

A network of channels-first images and of tokens flattens and transposes between them. In channels-last order, both
lie in memory alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from operator import mul

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.mutators import bound_call, extents, rewritten

_Shape = Sequence[int]


def simplify_views(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module without permutations that are reshapes, and with slices taken before permutations."""
    return rewritten(module, _Viewer)


def keeps_order(shape: _Shape, first: _Shape, between: _Shape, second: _Shape) -> bool:
    """Returns whether data that is permuted, reshaped and permuted again has its elements in their first order.

    Args:
        shape: the shape of the data.
        first: the axes of the first permutation.
        between: the shape to which the permuted data is reshaped.
        second: the axes of the second permutation.
    """
    permuted = [shape[axis] for axis in first]
    ends = sorted({*_ends(permuted), *_ends(between)})
    if 0 in ends or any(after % before for before, after in pairwise(ends)):
        return False
    # Each piece between two ends belongs to one axis of the permuted data and to one of the reshaped data.
    before, after = _pieces(permuted, ends), _pieces(between, ends)
    order = sorted(range(len(first)), key=lambda position: first[position])
    return [each for axis in order for each in before[axis]] == [each for axis in second for each in after[axis]]


def _ends(shape: _Shape) -> list[int]:
    """Returns how many elements each axis spans with those inside it, innermost first, beginning with one element."""
    return list(accumulate(reversed(shape), mul, initial=1))


def _pieces(shape: _Shape, ends: Sequence[int]) -> list[list[int]]:
    """Returns the pieces of each axis, outermost first, by their first end."""
    inside = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return [
        [end for end in reversed(ends) if inner <= end < inner * extent]
        for inner, extent in zip(inside, shape, strict=True)
    ]


@mutator
class _Viewer(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        if not isinstance(call.op, ir.Op) or call.op.name not in ("relax.permute_dims", "relax.strided_slice"):
            return call
        return self._reshaped(call) if call.op.name == "relax.permute_dims" else self._sliced(call)

    def _reshaped(self, call: ir.Call) -> ir.Expr:
        between = bound_call(self, call.args[0], "relax.reshape")
        first = None if between is None else bound_call(self, between.args[0], "relax.permute_dims")
        if first is None or not extents(call):
            return call
        data = first.args[0]
        if not keeps_order(extents(data), _axes(first), extents(between), _axes(call)):
            return call
        return relax.op.reshape(data, extents(call))

    def _sliced(self, call: ir.Call) -> ir.Expr:
        permuted = bound_call(self, call.args[0], "relax.permute_dims")
        if permuted is None:
            return call
        axes, (_, sliced, *bounds) = _axes(permuted), call.args
        places = [axes[int(axis.value) % len(axes)] for axis in sliced.fields]
        piece = self.builder_.emit(relax.op.strided_slice(permuted.args[0], places, *bounds))
        return relax.op.permute_dims(piece, axes)


def _axes(call: ir.Call) -> list[int]:
    rank = len(call.ty.shape)
    return [int(axis) % rank for axis in call.attrs.axes or reversed(range(rank))]
