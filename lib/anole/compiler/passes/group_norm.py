"""Legalize group norms as two kernels: one computes a scale and a shift for each channel, one applies them.

TVM's definition is a single kernel, into which nothing is fused. It sums over an entire image, which leaves few results
to distribute over threads. The variance, a difference of large values, has large errors where the mean is large.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import ir, relax, te, tirx

from anole.ir.kernel_calls import Pattern, mark
from anole.ir.mutators import extents
from anole.ir.symbols import all_static

_Index = tuple[Any, ...]


def legalize_group_norm(bb: relax.BlockBuilder, call: ir.Call) -> ir.Expr:
    """Legalize a group norm of images in either layout; other group norms keep TVM's definition."""
    shape, attrs = extents(call.args[0]), call.attrs
    channel = int(attrs.channel_axis) % max(len(shape), 1)
    spatial = [int(axis) for axis in attrs.axes]
    is_image = len(shape) > 2 and channel in (1, len(shape) - 1) and {0, channel, *spatial} == {*range(len(shape))}
    is_image = is_image and all_static(list(call.ty.shape)[1:])
    if not is_image or {str(expr.ty.dtype) for expr in (call, *call.args)} != {"float32"}:
        return call.op.get_attr("FLegalize")(bb, call)
    data, *affine = call.args

    def scale_and_shift(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> list[te.Tensor]:
        return _scale_and_shift(x, gamma, beta, int(attrs.num_groups), channel, float(attrs.epsilon))

    def apply(x: te.Tensor, scale: te.Tensor, shift: te.Tensor) -> te.Tensor:
        return te.compute(
            x.shape, lambda *i: x(*i) * scale[i[0], i[channel]] + shift[i[0], i[channel]], name="normalize"
        )

    kernel = bb.call_te(scale_and_shift, data, *affine, primfunc_name_hint="group_statistics")
    statistics = bb.emit(mark(bb, kernel, Pattern.OPAQUE))
    scale, shift = (bb.emit(relax.TupleGetItem(statistics, index)) for index in range(2))
    # Not fused into an anchor that computes the data: the scale depends on all of the data.
    kernel = bb.call_te(apply, data, scale, shift, primfunc_name_hint="normalize")
    return mark(bb, kernel, Pattern.INJECTIVE)


def _scale_and_shift(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, groups: int, channel: int, epsilon: float
) -> list[te.Tensor]:
    """Return the scale and the shift of each channel, both of shape (batch, channels)."""
    shape = [x.shape[0], *map(int, list(x.shape)[1:])]
    batch, channels = shape[0], shape[channel]
    group_size = channels // groups
    n_values = prod(shape[1:]) // groups
    # With channels last, sum each row: vectors are contiguous, and there are enough rows for all threads.
    summed_axes = list(range(2, len(shape))) if channel == 1 else [len(shape) - 2]
    kept_axes = [axis for axis in range(len(shape)) if axis not in summed_axes]

    def sum_rows(value: Any, name: str) -> te.Tensor:
        axes = [te.reduce_axis((0, shape[axis]), f"k{axis}") for axis in summed_axes]

        def total(*i: Any) -> Any:
            index = dict(zip(kept_axes, i, strict=True)) | dict(zip(summed_axes, axes, strict=True))
            return te.sum(value(tuple(index[axis] for axis in range(len(shape)))), axes)

        return te.compute([shape[axis] for axis in kept_axes], total, name=name)

    def sum_groups(partial: te.Tensor, name: str) -> te.Tensor:
        rows = [te.reduce_axis((0, shape[axis]), f"r{axis}") for axis in kept_axes if axis not in (0, channel)]
        member = te.reduce_axis((0, group_size), "member")
        return te.compute(
            (batch, groups),
            lambda n, g: te.sum(
                partial(n, g * group_size + member) if channel == 1 else partial(n, *rows, g * group_size + member),
                [*rows, member],
            ),
            name=name,
        )

    def per_channel(value: Any, name: str) -> te.Tensor:
        return te.compute((batch, channels), value, name=name)

    ratio = tirx.const(1.0 / n_values, "float32")
    total = sum_groups(sum_rows(lambda i: x(*i), "row_sum"), "group_sum")
    mean = per_channel(lambda n, c: total[n, c // group_size] * ratio, "mean")

    def squared_distance(i: _Index) -> Any:
        distance = x(*i) - mean[i[0], i[channel]]
        return distance * distance

    squares = sum_groups(sum_rows(squared_distance, "row_squares"), "group_squares")
    scale = per_channel(
        lambda n, c: gamma[c] * te.rsqrt(squares[n, c // group_size] * ratio + tirx.const(epsilon, "float32")), "scale"
    )
    shift = per_channel(lambda n, c: beta[c] - mean[n, c] * scale[n, c], "shift")
    return [scale, shift]
