"""Networks of one dimension as networks of two dimensions, of which one has the extent one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.fold import value_of
from anole.extract.rewrite import ELEMENTWISE, bound, bound_call, rewritten

_HEIGHT = 2
"""Where the new axis is, of (batch, channels, height, width)."""


def widen(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module with convolutions of one dimension as those of images that are one row high.

    Whatever follows them element by element, pools, joins channels or normalises batches reads and writes such images,
    too, so that nothing is between a convolution and its epilogue, and batch-norms are folded.
    """
    return rewritten(module, _Widener)


def _conv(call: ir.Call, operands: Sequence[ir.Expr]) -> ir.Expr:
    attrs = call.attrs
    settings = {
        "strides": _pair(attrs.strides, 1),
        "padding": _sides(attrs.padding),
        "dilation": _pair(attrs.dilation, 1),
        "groups": int(attrs.groups),
    }
    if call.op.name == "relax.nn.conv1d":
        return relax.op.nn.conv2d(*operands, **settings)
    return relax.op.nn.conv2d_transpose(*operands, **settings, output_padding=_pair(attrs.output_padding, 0))


def _pool(call: ir.Call, operands: Sequence[ir.Expr]) -> ir.Expr:
    attrs, op = (
        call.attrs,
        {"relax.nn.max_pool1d": relax.op.nn.max_pool2d, "relax.nn.avg_pool1d": relax.op.nn.avg_pool2d},
    )
    return op[call.op.name](
        *operands,
        pool_size=_pair(attrs.pool_size, 1),
        strides=_pair(attrs.strides, 1),
        padding=_sides(attrs.padding),
        dilation=_pair(attrs.dilation, 1),
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
    )


def _alike(call: ir.Call, operands: Sequence[ir.Expr]) -> ir.Expr:
    return relax.Call(call.op, operands, call.attrs)


def _pair(numbers: Sequence[Any], of_height: int) -> tuple[int, int]:
    return of_height, int(numbers[0])


def _sides(padding: Sequence[Any]) -> tuple[int, int, int, int]:
    """Returns (top, left, bottom, right) of the padding at both ends."""
    return 0, int(padding[0]), 0, int(padding[-1])


_BEGINNINGS = {"relax.nn.conv1d": _conv, "relax.nn.conv1d_transpose": _conv}
"""What is always widened; all else where it reads something that is."""

_WIDENED: dict[str, Callable[[ir.Call, Sequence[ir.Expr]], ir.Expr]] = {
    **_BEGINNINGS,
    "relax.nn.max_pool1d": _pool,
    "relax.nn.avg_pool1d": _pool,
    **dict.fromkeys(ELEMENTWISE, _alike),
}


@mutator
class _Widener(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        name = call.op.name if isinstance(call.op, ir.Op) else ""
        if name == "relax.expand_dims":
            return self._expand(call)
        if name == "relax.concat":
            return self._concat(call)
        if name == "relax.nn.batch_norm":
            return self._batch_norm(call)
        widened, operands = _WIDENED.get(name), list(call.args)
        if widened is None or not (name in _BEGINNINGS or any(map(self._is_narrowed, operands))):
            return call
        if len(call.ty.shape) != 3:
            return call
        return self._narrowed(widened(call, [self._wide(operand) for operand in operands]))

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> ir.Expr:
        item = self.visit_expr_post_order(item)
        whole = bound(self, item.tuple_value)
        return whole.fields[item.index] if isinstance(whole, relax.Tuple) else item

    def _expand(self, call: ir.Call) -> ir.Expr:
        # So TVM imports a pool of one dimension.
        wide, rank = self._before_narrowing(call.args[0]), len(call.ty.shape)
        return wide if wide is not None and [int(axis) % rank for axis in call.attrs.axis] == [_HEIGHT] else call

    def _concat(self, call: ir.Call) -> ir.Expr:
        whole = bound(self, call.args[0])
        if not isinstance(whole, relax.Tuple) or int(call.attrs.axis or 0) not in (0, 1):
            return call
        if not all(map(self._is_narrowed, whole.fields)):
            return call
        return self._narrowed(relax.op.concat([self._wide(field) for field in whole.fields], int(call.attrs.axis)))

    def _batch_norm(self, call: ir.Call) -> ir.Expr:
        data, *statistics = call.args
        if not self._is_narrowed(data) or int(call.attrs.axis) != 1:
            return call
        made = self.builder_.emit(relax.Call(call.op, [self._wide(data), *statistics], call.attrs))
        return relax.Tuple(
            [self._narrowed(relax.TupleGetItem(made, 0)), *(relax.TupleGetItem(made, i) for i in (1, 2))]
        )

    def _narrowed(self, wide: ir.Expr) -> ir.Expr:
        """Returns what has one dimension again, for those who cannot read two."""
        return self.builder_.emit(relax.op.squeeze(self.builder_.emit(wide), [_HEIGHT]))

    def _is_narrowed(self, operand: ir.Expr) -> bool:
        return self._before_narrowing(operand) is not None

    def _before_narrowing(self, operand: ir.Expr) -> ir.Expr | None:
        if (squeeze := bound_call(self, operand, "relax.squeeze")) is None:
            return None
        rank = len(squeeze.args[0].ty.shape)
        axes = [int(axis) % rank for axis in squeeze.attrs.axis or ()]
        return squeeze.args[0] if axes == [_HEIGHT] and rank == 4 else None

    def _wide(self, operand: ir.Expr) -> ir.Expr:
        """Returns an operand with the axis of height before its last one; what has no more than that stays."""
        if (wide := self._before_narrowing(operand)) is not None:
            return wide
        if not isinstance(operand.ty, relax.TensorType) or len(operand.ty.shape) < 2:
            return operand
        value = value_of(operand)
        if value is not None:
            return relax.const(np.expand_dims(value, -2), str(operand.ty.dtype))
        return self.builder_.emit(relax.op.expand_dims(operand, len(operand.ty.shape) - 1))
