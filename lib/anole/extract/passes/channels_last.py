"""Passes for the NHWC layout: TVM's layout conversion, then moving the remaining permutations until they cancel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import (
    ELEMENTWISE,
    bindings,
    extents,
    operator_of,
    resolve,
    resolve_call,
    rewrite,
    value_of,
    with_attrs,
)

_DESIRED_LAYOUTS = {"relax.nn.conv2d": ["NHWC", "HWIO"], "relax.nn.conv2d_transpose": ["NHWC", "HWIO"]}

# TVM would permute the data and updates of a scatter, but not its indices.
ir.Op.get("relax.scatter_nd").reset_attr("FRelaxInferLayout")

_TO_CHANNELS_FIRST = [0, 3, 1, 2]
"""The permutation that TVM inserts before an operator that its layout conversion does not support."""

_Axes = Sequence[int]


def to_channels_last(module: tvm.IRModule) -> tvm.IRModule:
    """Convert convolutions to NHWC, and insert permutations where other operators need another layout."""
    if not any(operator_of(binding.value) in _DESIRED_LAYOUTS for binding in bindings(module["main"])):
        # The conversion takes time quadratic in the network's length.
        return module
    return relax.transform.ConvertLayout(_DESIRED_LAYOUTS)(module)


def sink_permutations(module: tvm.IRModule) -> tvm.IRModule:
    """Move permutations after the operators that read them, if these can work on NHWC data."""
    return rewrite(module, _Sinker)


def _pad_width(attrs: Any, axes: _Axes) -> dict[str, Any]:
    widths = np.array([int(width) for width in attrs.pad_width]).reshape(-1, 2)
    return {"pad_width": widths[np.argsort(axes)].ravel().tolist()}


def _group_axes(attrs: Any, axes: _Axes) -> dict[str, Any]:
    return {"channel_axis": axes[int(attrs.channel_axis)], "axes": sorted(axes[int(axis)] for axis in attrs.axes)}


def _layouts(attrs: Any, axes: _Axes) -> dict[str, Any]:
    return dict.fromkeys({"layout", "out_layout"} & set(dir(attrs)), "NHWC")


_LAYOUT_OPERATORS = tuple(
    f"relax.{name}" for name in ("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d", "image.resize2d")
)
"""Operators with a layout attribute; it is NCHW on permuted data."""

_CHANGED_ATTRIBUTES: dict[str, Callable[[Any, _Axes], dict[str, Any]]] = {
    **dict.fromkeys((*ELEMENTWISE, "relax.strided_slice"), lambda attrs, axes: {}),
    **dict.fromkeys(_LAYOUT_OPERATORS, _layouts),
    **dict.fromkeys(
        ("relax.concat", "relax.nn.log_softmax", "relax.take"), lambda attrs, axes: {"axis": axes[int(attrs.axis)]}
    ),
    "relax.nn.group_norm": _group_axes,
    "relax.nn.pad": _pad_width,
}
"""Functions that return the changed attributes of an operator if axis i of its data becomes axis `axes[i]`."""


@mutator
class _Sinker(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        name = operator_of(call)
        if name == "relax.permute_dims":
            return self._merge_permutations(call)
        if name not in _CHANGED_ATTRIBUTES or len(getattr(call.ty, "shape", None) or ()) != len(_TO_CHANNELS_FIRST):
            return call
        operands, rest = self._operands(name, call)
        if all(self._permutation_source(operand) is None for operand in operands):
            return call
        nhwc = [self._as_nhwc(operand) for operand in operands]
        if any(operand is None for operand in nhwc):
            return call
        attributes = _CHANGED_ATTRIBUTES[name](call.attrs, _TO_CHANNELS_FIRST)
        moved = with_attrs(call, [relax.Tuple(nhwc)] if name == "relax.concat" else [*nhwc, *rest], **attributes)
        return relax.op.permute_dims(moved, _TO_CHANNELS_FIRST)

    def _operands(self, name: str, call: ir.Call) -> tuple[list[ir.Expr], list[ir.Expr]]:
        """Return the operands whose axes are reordered, and the remaining ones."""
        if name == "relax.concat":
            fields = resolve(self, call.args[0])
            return (list(fields.fields) if isinstance(fields, relax.Tuple) else []), []
        if name in ELEMENTWISE:
            return list(call.args), []
        data, *rest = call.args
        if name == "relax.strided_slice":
            slice_axes, *bounds = rest
            moved = [relax.prim_value(_TO_CHANNELS_FIRST[int(axis.value)]) for axis in slice_axes.fields]
            rest = [relax.Tuple(moved), *bounds]
        return [data], rest

    def _merge_permutations(self, call: ir.Call) -> ir.Expr:
        """Merge two consecutive permutations; return the data itself if they cancel out."""
        source = self._permutation_source(call.args[0])
        if source is None or not call.attrs.axes:
            return call
        axes = [_TO_CHANNELS_FIRST[int(axis)] for axis in call.attrs.axes]
        return source if axes == sorted(axes) else relax.op.permute_dims(source, axes)

    def _as_nhwc(self, operand: ir.Expr) -> ir.Expr | None:
        """Return an operand in NHWC order, or None if that would require a new permutation."""
        if (source := self._permutation_source(operand)) is not None:
            return source
        is_scalar = not isinstance(operand.ty, relax.TensorType) or not len(operand.ty.shape)
        if is_scalar or set(extents(operand)) == {1}:
            return operand
        if (value := value_of(operand)) is None:
            return None
        expanded = value.reshape((1,) * (len(_TO_CHANNELS_FIRST) - value.ndim) + value.shape)
        reordered = expanded.transpose(np.argsort(_TO_CHANNELS_FIRST))
        return relax.const(np.ascontiguousarray(reordered), str(operand.ty.dtype))

    def _permutation_source(self, operand: ir.Expr) -> ir.Expr | None:
        """Return the operand of a permutation to channels first, or None for all other expressions."""
        call = resolve_call(self, operand, "relax.permute_dims")
        if call is None or [int(axis) for axis in call.attrs.axes or ()] != _TO_CHANNELS_FIRST:
            return None
        return call.args[0]
