"""Pass that rewrites 1-d and 3-d convolutions as conv2d, on one-column images or on a volume's slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np
import tvm
from tvm import ir, relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from anole.ir.mutators import ELEMENTWISE, extents, operator_of, resolve, resolve_call, resolve_value, rewrite


def as_conv2d(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite 1-d and 3-d convolutions as 2-d convolutions.

    The elementwise operators, pools, concatenations and batch norms after them are rewritten, too. This keeps a
    convolution next to its epilogue, and allows folding batch norms.
    """
    return rewrite(module, _Imager)


class _Form(Protocol):
    """A conversion between data of some rank and images of shape (batch, channels, rows, columns)."""

    def images(self, mutator: Any, data: ir.Expr) -> ir.Expr | None:
        """Return the images that the data was converted from, or None."""

    def as_images(self, mutator: Any, operand: ir.Expr, shape: Sequence[int]) -> ir.Expr | None:
        """Convert an operand of a result with this shape so it broadcasts to images; return None if impossible."""

    def from_images(self, images: ir.Expr, shape: Sequence[int]) -> ir.Expr:
        """Convert images back to data of this shape."""


class _Columns:
    """Conversion of (batch, channels, length) to images of one column, since threads divide rows among them."""

    def images(self, mutator: Any, data: ir.Expr) -> ir.Expr | None:
        if (squeeze := resolve_call(mutator, data, "relax.squeeze")) is None:
            return None
        return squeeze.args[0] if len(squeeze.args[0].ty.shape) == 4 and _axes(squeeze) == [3] else None

    def as_images(self, mutator: Any, operand: ir.Expr, shape: Sequence[int]) -> ir.Expr | None:
        rank = len(extents(operand))
        if (images := self.images(mutator, operand)) is not None or not rank:
            return operand if images is None else images
        if (value := resolve_value(mutator, operand)) is not None:
            return relax.const(np.expand_dims(value, -1), str(operand.ty.dtype))
        return relax.op.expand_dims(operand, rank)

    def from_images(self, images: ir.Expr, shape: Sequence[int]) -> ir.Expr:
        return relax.op.squeeze(images, [3])


class _Slices:
    """Conversion of (batch, channels, depth, rows, columns) to (batch * depth) images."""

    _ORDER = (0, 2, 1, 3, 4)

    def images(self, mutator: Any, data: ir.Expr) -> ir.Expr | None:
        permuted = resolve_call(mutator, data, "relax.permute_dims")
        if permuted is None or tuple(map(int, permuted.attrs.axes or ())) != self._ORDER:
            return None
        volumes = resolve_call(mutator, permuted.args[0], "relax.reshape")
        if volumes is None:
            return None
        batch, depth, *rest = extents(volumes)
        return volumes.args[0] if extents(volumes.args[0]) == [batch * depth, *rest] else None

    def as_images(self, mutator: Any, operand: ir.Expr, shape: Sequence[int]) -> ir.Expr | None:
        if (images := self.images(mutator, operand)) is not None:
            return images
        operand_shape = extents(operand)
        if (value := resolve_value(mutator, operand)) is not None and value.ndim > 2:
            expanded = value.reshape((1,) * (5 - value.ndim) + value.shape)
            is_broadcast = expanded.shape[0] == expanded.shape[2] == 1
            return relax.const(expanded[:, :, 0], str(operand.ty.dtype)) if is_broadcast else None
        if len(operand_shape) < 3:
            return operand
        if operand_shape != list(shape):
            return None
        batch, channels, depth, rows, columns = shape
        swapped = relax.op.permute_dims(operand, self._ORDER)
        return relax.op.reshape(swapped, (batch * depth, channels, rows, columns))

    def from_images(self, images: ir.Expr, shape: Sequence[int]) -> ir.Expr:
        batch, channels, depth, rows, columns = shape
        return relax.op.permute_dims(relax.op.reshape(images, (batch, depth, channels, rows, columns)), self._ORDER)


_FORMS: dict[int, _Form] = {3: _Columns(), 5: _Slices()}
"""Forms by the rank of the data."""

_Rewrite = Callable[[Any, ir.Call, Sequence[ir.Expr]], ir.Expr | None]
"""A function from the mutator, a call and its operands as images to the result as images, or None if impossible."""


def _column_convolution(mutator: Any, call: ir.Call, operands: Sequence[ir.Expr]) -> ir.Expr:
    attrs = call.attrs
    settings = {
        "strides": _pair(attrs.strides, 1),
        "padding": _sides(attrs.padding),
        "dilation": _pair(attrs.dilation, 1),
        "groups": int(attrs.groups),
    }
    if call.op.name == "relax.nn.conv1d":
        return relax.op.nn.conv2d(*operands, **settings, out_dtype=attrs.out_dtype)
    return relax.op.nn.conv2d_transpose(*operands, **settings, output_padding=_pair(attrs.output_padding, 0))


def _pool(mutator: Any, call: ir.Call, operands: Sequence[ir.Expr]) -> ir.Expr:
    attrs = call.attrs
    op = relax.op.nn.max_pool2d if ".max_pool" in call.op.name else relax.op.nn.avg_pool2d
    return op(
        operands[0],
        pool_size=_pair(attrs.pool_size, 1),
        strides=_pair(attrs.strides, 1),
        padding=_sides(attrs.padding),
        dilation=_pair(attrs.dilation, 1),
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
    )


def _volume_convolution(mutator: Any, call: ir.Call, operands: Sequence[ir.Expr]) -> ir.Expr | None:
    """Convolve each slice with adjacent slices as further channels, or tap by tap if the convolution is grouped."""
    attrs, weight = call.attrs, resolve_value(mutator, call.args[1])
    if weight is None:
        return None
    dtype, groups = str(call.args[1].ty.dtype), int(attrs.groups)
    taps = _depth_taps(mutator, call, operands[0], weight.shape[2], int(attrs.dilation[0]))
    weights = [weight[:, :, tap] for tap in range(len(taps))]
    if groups == 1:
        taps = taps if len(taps) == 1 else [relax.op.concat(taps, 1)]
        weights = [np.concatenate(weights, axis=1)]
    settings = {
        "strides": _pair(attrs.strides, 1),
        "padding": _sides(attrs.padding),
        "dilation": _pair(attrs.dilation, 1),
        "groups": groups,
        "out_dtype": attrs.out_dtype,
    }
    products = [
        mutator.builder_.emit(relax.op.nn.conv2d(tap, relax.const(np.ascontiguousarray(part), dtype), **settings))
        for tap, part in zip(taps, weights, strict=True)
    ]
    return reduce(relax.op.add, products)


def _volume_pool(mutator: Any, call: ir.Call, operands: Sequence[ir.Expr]) -> ir.Expr | None:
    """Pool each slice, then combine the slices within the pool's depth."""
    attrs, depth, results = call.attrs, extents(call.args[0])[2], int(call.ty.shape[2])
    end = (results - 1) * int(attrs.strides[0]) + int(attrs.pool_size[0])
    if int(attrs.padding[0]) or int(attrs.padding[3]) or int(attrs.dilation[0]) != 1 or end > depth:
        return None
    n_taps = int(attrs.pool_size[0])
    taps = _depth_taps(mutator, call, _pool(mutator, call, operands), n_taps, 1)
    if call.op.name == "relax.nn.max_pool3d":
        return reduce(relax.op.maximum, taps)
    total = reduce(relax.op.add, taps)
    return relax.op.multiply(total, relax.const(1 / n_taps, str(call.ty.dtype))) if n_taps > 1 else total


def _depth_taps(mutator: Any, call: ir.Call, images: ir.Expr, n_taps: int, dilation: int) -> list[ir.Expr]:
    """Return the input slices that the output slices read, for each of `n_taps` depth taps of a convolution or pool."""
    builder, stride = mutator.builder_, int(call.attrs.strides[0])
    front, back = int(call.attrs.padding[0]), int(call.attrs.padding[3])
    if (n_taps, stride, front, back) == (1, 1, 0, 0):
        return [images]
    (batch, _, depth, *_), results = extents(call.args[0]), int(call.ty.shape[2])
    images = images if isinstance(images, relax.Var) else builder.emit(images)
    _, *rest = extents(images)
    axis = 0 if batch == 1 else 1
    if batch > 1:
        images = builder.emit(relax.op.reshape(images, (batch, depth, *rest)))
    if front or back:
        widths = [0, 0] * axis + [front, back] + [0, 0] * 3
        images = builder.emit(relax.op.nn.pad(images, widths))
    span = (results - 1) * stride + 1
    slices = [
        builder.emit(relax.op.strided_slice(images, [axis], [start], [start + span], [stride]))
        for start in range(0, n_taps * dilation, dilation)
    ]
    return [builder.emit(relax.op.reshape(tap, (batch * results, *rest))) if batch > 1 else tap for tap in slices]


def _pad(mutator: Any, call: ir.Call, operands: Sequence[ir.Expr]) -> ir.Expr | None:
    batch, channels, *inner = zip(*[iter(map(int, call.attrs.pad_width))] * 2, strict=True)
    if len(inner) == 3 and any((*batch, *inner[0])):
        return None
    sides = (*inner, (0, 0)) if len(inner) == 1 else inner[1:]
    widths = [width for pair in (batch, channels, *sides) for width in pair]
    return relax.op.nn.pad(operands[0], widths, str(call.attrs.pad_mode), float(call.attrs.pad_value))


def _slice(mutator: Any, call: ir.Call, operands: Sequence[ir.Expr]) -> ir.Expr | None:
    data, axes, *bounds = operands
    to_images = {0: 0, 1: 1, 2: 2} if len(call.ty.shape) == 3 else {1: 1, 3: 2, 4: 3}
    image_axes = [to_images.get(int(axis.value) % len(call.ty.shape)) for axis in axes.fields]
    return None if None in image_axes else relax.op.strided_slice(data, image_axes, *bounds)


def _pair(values: Sequence[Any], column_value: int) -> tuple[int, int]:
    """Return (rows, columns) of three values, or of a single value for rows."""
    *_, rows, columns = (*map(int, values), column_value) if len(values) == 1 else map(int, values)
    return rows, columns


def _sides(padding: Sequence[Any]) -> tuple[int, ...]:
    """Return (top, left, bottom, right) padding, given the padding of a volume's six sides or a column's two ends."""
    if len(padding) == 6:
        return tuple(int(padding[i]) for i in (1, 2, 4, 5))
    return int(padding[0]), 0, int(padding[-1]), 0


def _expanded_row(mutator: Any, call: ir.Call) -> ir.Expr | None:
    """Return the 3-d data that a call reads as images of one row, or None for all other operands."""
    expanded = resolve_call(mutator, call.args[0], "relax.expand_dims")
    return None if expanded is None or len(expanded.ty.shape) != 4 or _axes(expanded) != [2] else expanded.args[0]


def _axes(call: ir.Call) -> list[int]:
    """Return the non-negative axes of an expand_dims to images or a squeeze of images."""
    return [int(axis) % 4 for axis in call.attrs.axis or ()]


_POOLS = {"relax.nn.max_pool2d": relax.op.nn.max_pool2d, "relax.nn.avg_pool2d": relax.op.nn.avg_pool2d}

_CONVOLUTIONS: dict[str, _Rewrite] = {
    "relax.nn.conv1d": _column_convolution,
    "relax.nn.conv1d_transpose": _column_convolution,
    "relax.nn.conv3d": _volume_convolution,
}
"""Operators that are always rewritten; other operators are rewritten only if they read converted data."""

_REWRITES: dict[str, _Rewrite] = {
    **_CONVOLUTIONS,
    "relax.nn.max_pool1d": _pool,
    "relax.nn.avg_pool1d": _pool,
    "relax.nn.max_pool3d": _volume_pool,
    "relax.nn.avg_pool3d": _volume_pool,
    "relax.nn.pad": _pad,
    "relax.strided_slice": _slice,
    **dict.fromkeys(ELEMENTWISE, lambda mutator, call, operands: relax.Call(call.op, operands, call.attrs)),
}


@mutator
class _Imager(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: ir.Call) -> ir.Expr:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        name = operator_of(call)
        if name == "relax.squeeze":
            return self._squeeze(call)
        if name in _POOLS:
            return self._convert_pool(call)
        if name == "relax.concat":
            return self._concat(call)
        if name == "relax.nn.batch_norm":
            return self._batch_norm(call)
        form = _FORMS.get(len(extents(call)))
        if form is None or name not in _REWRITES:
            return call
        if name not in _CONVOLUTIONS and all(form.images(self, operand) is None for operand in call.args):
            return call
        shape = extents(call)
        # A 3-d convolution's data and result differ in shape, and its weight is not converted.
        arguments = [call.args[0]] if name == "relax.nn.conv3d" else call.args
        operands = [form.as_images(self, arg, shape if name in ELEMENTWISE else extents(arg)) for arg in arguments]
        result = None if any(operand is None for operand in operands) else _REWRITES[name](self, call, operands)
        return call if result is None else form.from_images(result, shape)

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> ir.Expr:
        item = self.visit_expr_post_order(item)
        source = resolve(self, item.tuple_value)
        return source.fields[item.index] if isinstance(source, relax.Tuple) else item

    def _squeeze(self, call: ir.Call) -> ir.Expr:
        row = _expanded_row(self, call)
        return call if row is None or _axes(call) != [2] else row

    def _convert_pool(self, call: ir.Call) -> ir.Expr:
        """Turn a 2-d pool over images of one row, TVM's import of a 1-d pool, into a pool over images of one column."""
        row = _expanded_row(self, call)
        if row is None or (images := _FORMS[3].images(self, row)) is None:
            return call
        attrs = call.attrs
        pooled = _POOLS[call.op.name](
            images,
            **{name: list(getattr(attrs, name))[::-1] for name in ("pool_size", "strides", "dilation")},
            padding=[attrs.padding[i] for i in (1, 0, 3, 2)],
            ceil_mode=bool(attrs.ceil_mode),
            count_include_pad=bool(attrs.count_include_pad),
        )
        batch, channels, _, length = extents(call)
        return relax.op.expand_dims(_FORMS[3].from_images(pooled, (batch, channels, length)), 2)

    def _concat(self, call: ir.Call) -> ir.Expr:
        form, fields = _FORMS.get(len(extents(call))), resolve(self, call.args[0])
        if form is None or not isinstance(fields, relax.Tuple) or int(call.attrs.axis or 0) != 1:
            return call
        parts = [form.images(self, field) for field in fields.fields]
        if any(part is None for part in parts):
            return call
        return form.from_images(relax.op.concat(parts, 1), extents(call))

    def _batch_norm(self, call: ir.Call) -> ir.Expr:
        data, *statistics = call.args
        shape = extents(data)
        form = _FORMS.get(len(shape))
        images = None if form is None else form.images(self, data)
        if form is None or images is None or int(call.attrs.axis) != 1:
            return call
        norm = self.builder_.emit(relax.Call(call.op, [images, *statistics], call.attrs))
        first = form.from_images(relax.TupleGetItem(norm, 0), shape)
        return relax.Tuple([first, *(relax.TupleGetItem(norm, i) for i in (1, 2))])
