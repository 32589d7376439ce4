"""Eliminate permutations of data that undo each other, and shrink others by swapping them with their consumers.

A network with channels-first images and tokens flattens and transposes between them. In channels-last order, both have
the same memory layout. Means are taken before permutations, and images are permuted while they are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod
from operator import mul

import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import extents, permuted_axes, read_counts, resolve_call, resolve_if_read_once, rewrite

_Shape = Sequence[int]

_TO_CHANNELS_FIRST = [0, 3, 1, 2]


def simplify_views(module: tvm.IRModule) -> tvm.IRModule:
    """Replace permutations that are reshapes, and take slices before permutations."""
    return rewrite(module, _Viewer)


def mean_before_permuting(module: tvm.IRModule) -> tvm.IRModule:
    """Take means over the original axes wherever the order of the other axes stays the same."""
    return rewrite(module, _Averager)


def permute_before_enlarging(module: tvm.IRModule) -> tvm.IRModule:
    """Permute images to channels-first before instead of after they are enlarged."""
    return rewrite(module, _Permuter)


def keeps_order(shape: _Shape, first: _Shape, between: _Shape, second: _Shape) -> bool:
    """Whether data that is permuted, reshaped and permuted again is back in its original order.

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
    # Each piece between two ends belongs to one axis of the permuted data and to one axis of the reshaped data.
    before, after = _pieces(permuted, ends), _pieces(between, ends)
    order = sorted(range(len(first)), key=lambda position: first[position])
    return [piece for axis in order for piece in before[axis]] == [piece for axis in second for piece in after[axis]]


def _ends(shape: _Shape) -> list[int]:
    """Return the number of elements that each axis spans with its inner axes, innermost first, starting with 1."""
    return list(accumulate(reversed(shape), mul, initial=1))


def _pieces(shape: _Shape, ends: Sequence[int]) -> list[list[int]]:
    """Return the pieces of each axis, outermost first, identified by their inner end."""
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
        return self._simplify_permutation(call) if call.op.name == "relax.permute_dims" else self._slice_first(call)

    def _simplify_permutation(self, call: ir.Call) -> ir.Expr:
        between = resolve_call(self, call.args[0], "relax.reshape")
        first = None if between is None else resolve_call(self, between.args[0], "relax.permute_dims")
        if first is None or not extents(call):
            return call
        data = first.args[0]
        if not keeps_order(extents(data), permuted_axes(first), extents(between), permuted_axes(call)):
            return call
        return relax.op.reshape(data, call.ty.shape)

    def _slice_first(self, call: ir.Call) -> ir.Expr:
        permuted = resolve_call(self, call.args[0], "relax.permute_dims")
        if permuted is None:
            return call
        axes, (_, slice_axes, *bounds) = permuted_axes(permuted), call.args
        source_axes = [axes[int(axis.value) % len(axes)] for axis in slice_axes.fields]
        piece = self.builder_.emit(relax.op.strided_slice(permuted.args[0], source_axes, *bounds))
        return relax.op.permute_dims(piece, axes)


@mutator
class _Averager(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        permuted = (
            resolve_call(self, call.args[0], "relax.permute_dims") if call.op == ir.Op.get("relax.mean") else None
        )
        if permuted is None:
            return call
        order, rank = permuted_axes(permuted), len(permuted.ty.shape)
        reduced = {int(axis) % rank for axis in call.attrs.axis} if call.attrs.axis else set(range(rank))
        kept = [axis for position, axis in enumerate(order) if position not in reduced]
        if kept != sorted(kept):
            return call
        means = relax.op.mean(permuted.args[0], sorted(order[position] for position in reduced))
        return relax.op.reshape(self.builder_.emit(means), call.ty.shape)


@mutator
class _Permuter(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._uses = read_counts(module)

    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.visit_expr_post_order(call)
        if call.op != ir.Op.get("relax.permute_dims") or [*map(int, call.attrs.axes or ())] != _TO_CHANNELS_FIRST:
            return call
        resize = resolve_if_read_once(self, self._uses, call.args[0])
        if not isinstance(resize, ir.Call) or resize.op != ir.Op.get("relax.image.resize2d"):
            return call
        data, size = resize.args
        if str(resize.attrs.layout) != "NHWC" or prod(extents(data)) >= prod(extents(call)):
            return call
        permuted = self.builder_.emit(relax.op.permute_dims(data, _TO_CHANNELS_FIRST))
        names = set(dir(resize.attrs)) - set(dir(ir.Attrs))
        attrs = {name: getattr(resize.attrs, name) for name in names} | {"layout": "NCHW"}
        return relax.Call(resize.op, [permuted, size], ir.make_node("relax.attrs.Resize2DAttrs", **attrs))
