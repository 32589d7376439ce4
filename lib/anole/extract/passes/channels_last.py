"""Lays data out with channels last by TVM's conversion, and moves the permutations that it leaves until they cancel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.extract.passes.mutators import (
    ELEMENTWISE,
    bindings,
    bound,
    bound_call,
    extents,
    operator_of,
    rewritten,
    value_of,
    with_attrs,
)

_CONVERTED = {"relax.nn.conv2d": ["NHWC", "HWIO"], "relax.nn.conv2d_transpose": ["NHWC", "HWIO"]}

_TO_CHANNELS_FIRST = [0, 3, 1, 2]
"""The permutation that TVM inserts before an operator whose layouts its conversion does not know."""

_Axes = Sequence[int]


def lay_channels_last(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module with convolutions in NHWC, and permutations where other operators need another layout."""
    if not any(operator_of(binding.value) in _CONVERTED for binding in bindings(module["main"])):
        # The conversion takes time in proportion to the square of the network's length.
        return module
    return relax.transform.ConvertLayout(_CONVERTED)(module)


def sink_permutations(module: tvm.IRModule) -> tvm.IRModule:
    """Returns the module with operators on data in its own layout, where TVM would permute it and back."""
    return rewritten(module, _Sinker)


def _alike(call: ir.Call, operands: Sequence[ir.Expr], axes: _Axes) -> ir.Expr:
    return relax.Call(call.op, operands, call.attrs)


def _pad(call: ir.Call, operands: Sequence[ir.Expr], axes: _Axes) -> ir.Expr:
    widths = np.array([int(width) for width in call.attrs.pad_width]).reshape(-1, 2)
    value = float(call.attrs.pad_value)
    return relax.op.nn.pad(operands[0], widths[np.argsort(axes)].ravel().tolist(), str(call.attrs.pad_mode), value)


def _take(call: ir.Call, operands: Sequence[ir.Expr], axes: _Axes) -> ir.Expr:
    data, places = operands
    return relax.op.take(data, places, axes[int(call.attrs.axis)], str(call.attrs.mode))


def _slice(call: ir.Call, operands: Sequence[ir.Expr], axes: _Axes) -> ir.Expr:
    data, sliced, *bounds = operands
    return relax.op.strided_slice(data, [axes[int(axis.value)] for axis in sliced.fields], *bounds)


def _log_softmax(call: ir.Call, operands: Sequence[ir.Expr], axes: _Axes) -> ir.Expr:
    return relax.op.nn.log_softmax(operands[0], axes[int(call.attrs.axis)])


def _concat(call: ir.Call, operands: Sequence[ir.Expr], axes: _Axes) -> ir.Expr:
    return relax.op.concat(operands, axes[int(call.attrs.axis)])


def _group_norm(call: ir.Call, operands: Sequence[ir.Expr], axes: _Axes) -> ir.Expr:
    attrs, spatial = call.attrs, sorted(axes[int(axis)] for axis in call.attrs.axes)
    channel = axes[int(attrs.channel_axis)]
    return relax.op.nn.group_norm(
        *operands, attrs.num_groups, channel, spatial, float(attrs.epsilon), attrs.center, attrs.scale
    )


def _relaid(call: ir.Call, operands: Sequence[ir.Expr], axes: _Axes) -> ir.Expr:
    layouts = dict.fromkeys({"layout", "out_layout"} & set(dir(call.attrs)), "NHWC")
    return with_attrs(call, operands, **layouts)


_LAID = ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d", "image.resize2d")
"""Operators whose attributes name the layout of their data, which is NCHW after the permutation."""

_MOVED: dict[str, Callable[[ir.Call, Sequence[ir.Expr], _Axes], ir.Expr]] = {
    **dict.fromkeys(ELEMENTWISE, _alike),
    **{f"relax.{name}": _relaid for name in _LAID},
    "relax.concat": _concat,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.pad": _pad,
    "relax.nn.log_softmax": _log_softmax,
    "relax.strided_slice": _slice,
    "relax.take": _take,
}
"""Rebuilds each operator on operands that are not permuted; axis i of the call becomes `axes[i]`."""

_FIRST_ONLY = tuple(
    f"relax.{name}" for name in ("nn.group_norm", "nn.log_softmax", "nn.pad", "strided_slice", "take", *_LAID)
)
"""Operators of which only the first operand is data."""


@mutator
class _Sinker(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        name = operator_of(call)
        if name == "relax.permute_dims":
            return self._joined(call)
        if name not in _MOVED or len(getattr(call.ty, "shape", None) or ()) != len(_TO_CHANNELS_FIRST):
            return call
        operands, others = self._operands(name, call)
        if all(self._before(operand) is None for operand in operands):
            return call
        laid = [self._as_it_lies(operand) for operand in operands]
        if any(operand is None for operand in laid):
            return call
        moved = _MOVED[name](call, [*laid, *others], _TO_CHANNELS_FIRST)
        return relax.op.permute_dims(self.builder_.emit(moved), _TO_CHANNELS_FIRST)

    def _operands(self, name: str, call: ir.Call) -> tuple[list[ir.Expr], list[ir.Expr]]:
        """Returns the operands whose order changes, and the remaining ones."""
        if name == "relax.concat":
            joined = bound(self, call.args[0])
            return (list(joined.fields) if isinstance(joined, relax.Tuple) else []), []
        n_data = 1 if name in _FIRST_ONLY else len(call.args)
        return list(call.args[:n_data]), list(call.args[n_data:])

    def _joined(self, call: ir.Call) -> ir.Expr:
        """Merges two consecutive permutations; returns the data itself if they cancel out."""
        before = self._before(call.args[0])
        if before is None or not call.attrs.axes:
            return call
        axes = [_TO_CHANNELS_FIRST[int(axis)] for axis in call.attrs.axes]
        return before if axes == sorted(axes) else relax.op.permute_dims(before, axes)

    def _as_it_lies(self, operand: ir.Expr) -> ir.Expr | None:
        """Returns an operand in the order before the permutation, or None where it would have to be permuted back."""
        if (before := self._before(operand)) is not None:
            return before
        is_scalar = not isinstance(operand.ty, relax.TensorType) or not len(operand.ty.shape)
        if is_scalar or set(extents(operand)) == {1}:
            return operand
        if (value := value_of(operand)) is None:
            return None
        whole = value.reshape((1,) * (len(_TO_CHANNELS_FIRST) - value.ndim) + value.shape)
        back = whole.transpose(np.argsort(_TO_CHANNELS_FIRST))
        return relax.const(np.ascontiguousarray(back), str(operand.ty.dtype))

    def _before(self, operand: ir.Expr) -> ir.Expr | None:
        """Returns the data that is permuted to channels first, or None if it is not."""
        call = bound_call(self, operand, "relax.permute_dims")
        if call is None or [int(axis) for axis in call.attrs.axes or ()] != _TO_CHANNELS_FIRST:
            return None
        return call.args[0]
