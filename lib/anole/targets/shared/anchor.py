"""The anchor operator of a function being scheduled: finding it, its padding and its epilogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import s_tir, te, tirx

from anole.ir.nodes import blocks_of
from anole.targets.base import ANCHOR
from anole.targets.shared.packed_words import product
from anole.task import Conv2d

AXES = "anole.axes"
"""The attribute of a block that permutes the anchor's result: the original axes, in their new order."""

SBlockRV = Any


def find_anchor(sch: s_tir.Schedule) -> SBlockRV:
    """Return the anchor operator's block."""
    return next(block for block in blocks_of(sch) if ANCHOR in sch.get(block).annotations)


def find_block(sch: s_tir.Schedule, name: str) -> SBlockRV | None:
    """Return the block with the given name, or None."""
    return next((block for block in blocks_of(sch) if sch.get(block).name_hint == name), None)


def join_epilogue(sch: s_tir.Schedule, anchor: SBlockRV) -> SBlockRV:
    """Fuse everything after the anchor into one block and return it; the anchor's result becomes thread-local.

    If nothing follows the anchor, a block that copies its result is added. Blocks that compute other operands of the
    epilogue, such as a residual's scale, are inlined into it.
    """
    consumers = _consumers(sch, anchor)
    if not consumers:
        sch.cache_write(anchor, 0, "local")
        consumers = _consumers(sch, anchor)
    else:
        sch.set_scope(anchor, 0, "local")
    while True:
        intermediate = [block for block in consumers if sch.get_consumers(block)]
        if not intermediate:
            _inline_operands(sch, consumers[0], anchor)
            return consumers[0]
        for block in intermediate:
            sch.compute_inline(block)
        consumers = _consumers(sch, anchor)


def pad(w: Conv2d, data: te.Tensor, channels: int | None = None) -> te.Tensor:
    """Pad NHWC data with zeros, optionally up to a number of channels; the block is named ``pad``."""
    channels = channels or w.in_channels
    if not any(w.padding) and channels == w.in_channels:
        return data
    top, left = w.padding[:2]

    def point(n: Any, y: Any, x: Any, c: Any) -> Any:
        conditions = [y >= top, y < w.height + top, x >= left, x < w.width + left]
        inside = tirx.all(*conditions, c < w.in_channels) if channels > w.in_channels else tirx.all(*conditions)
        return tirx.if_then_else(inside, data[n, y - top, x - left, c], tirx.const(0, data.dtype))

    return te.compute((w.batch, w.padded_height, w.padded_width, channels), point, name="pad")


def convolve(
    w: Conv2d,
    padded: te.Tensor,
    packed: te.Tensor,
    size: tuple[int, int, int],
    name: str = "conv2d",
    first_channel: Callable[[Any], Any] | None = None,
) -> te.Tensor:
    """Convolve padded NHWC data with weights packed in panels, as NHWC; the block is marked as the anchor.

    Args:
        w: the convolution.
        padded: the result of `pad`.
        packed: (panels, kernel height, kernel width, channels of a group, panel width), without channels if depthwise.
        size: number of rows, columns and filters of the result; elements beyond the convolution's output are unused.
        name: the block's name.
        first_channel: maps a filter to its first input channel; by default, the first channel of its group.
    """
    (rows, columns, filters), panel = size, int(packed.shape[-1])
    channels, filters_of_group = w.in_channels // w.groups, w.out_channels // w.groups
    channel_axes = [te.reduce_axis((0, channels), "rc")] if len(packed.shape) == 5 else []
    ry = te.reduce_axis((0, w.kernel[0]), "ry")
    rx = te.reduce_axis((0, w.kernel[1]), "rx")

    def channel(f: Any) -> Any:
        first = first_channel(f) if first_channel is not None else f // filters_of_group * channels
        return sum(channel_axes, first) if w.groups > 1 else channel_axes[0]

    def point(n: Any, y: Any, x: Any, f: Any) -> Any:
        row, column = y * w.strides[0] + ry * w.dilation[0], x * w.strides[1] + rx * w.dilation[1]
        if columns > w.out_width:
            column = tirx.min(column, w.padded_width - 1)
        if rows > w.out_height:
            row = tirx.min(row, w.padded_height - 1)
        weight = packed[(f // panel, ry, rx, *channel_axes, f % panel)]
        return te.sum(product(w.dtype, padded[n, row, column, channel(f)], weight), axis=[*channel_axes, ry, rx])

    return te.compute((w.batch, rows, columns, filters), point, name=name, attrs={ANCHOR: w.operator})


def crop(result: te.Tensor, *shape: Any) -> te.Tensor:
    """Crop a result to a shape, from its first element."""
    if all(is_same_extent(a, b) for a, b in zip(result.shape, shape, strict=True)):
        return result
    return te.compute(shape, lambda *at: result[at], name="crop")


def is_same_extent(a: Any, b: Any) -> bool:
    """Whether two extents, integers or expressions, are provably equal."""
    is_static = [isinstance(extent, (int, tirx.IntImm)) for extent in (a, b)]
    return int(a) == int(b) if all(is_static) else not any(is_static) and tvm_ffi.structural_equal(a, b)


def scheduled(sch: s_tir.Schedule) -> tirx.PrimFunc:
    """Return the only function of a schedule."""
    return sch.mod["main"]


def _inline_operands(sch: s_tir.Schedule, epilogue: SBlockRV, anchor: SBlockRV) -> None:
    """Inline all producers of the epilogue except the anchor, recursively."""
    anchor_ref = sch.get_sref(anchor)
    while operands := [block for block in sch.get_producers(epilogue) if not sch.get_sref(block).same_as(anchor_ref)]:
        for block in operands:
            sch.compute_inline(block)


def _consumers(sch: s_tir.Schedule, block: SBlockRV) -> list[SBlockRV]:
    return list(sch.get_consumers(block))
