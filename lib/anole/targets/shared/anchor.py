"""Finds and prepares the anchor operator of a function being scheduled, with its padding and its epilogue."""

from __future__ import annotations

from typing import Any

from tvm import s_tir, te, tirx

from anole.targets.base import ANCHOR
from anole.task import Conv2d

SBlockRV = Any


def find_anchor(sch: s_tir.Schedule) -> SBlockRV:
    """Returns the anchor operator's block."""
    return next(block for block in _blocks(sch) if ANCHOR in sch.get(block).annotations)


def find_block(sch: s_tir.Schedule, name: str) -> SBlockRV | None:
    """Returns the block with a name, or None."""
    return next((block for block in _blocks(sch) if sch.get(block).name_hint == name), None)


def join_epilogue(sch: s_tir.Schedule, anchor: SBlockRV) -> SBlockRV:
    """Fuses everything after the anchor into one block and returns it; the anchor's result becomes thread-local.

    If nothing follows the anchor, a block that copies its result is added. Blocks that compute other operands of the
    epilogue, such as a residual's scale, are inlined into it.

    Args:
        sch: the schedule of the whole function.
        anchor: the block whose result the epilogue reads.
    """
    consumers = _consumers(sch, anchor)
    if not consumers:
        sch.cache_write(anchor, 0, "local")
        consumers = _consumers(sch, anchor)
    else:
        sch.set_scope(anchor, 0, "local")
    while True:
        later = [block for block in consumers if sch.get_consumers(block)]
        if not later:
            _inline_operands(sch, consumers[0], anchor)
            return consumers[0]
        for block in later:
            sch.compute_inline(block)
        consumers = _consumers(sch, anchor)


def pad(w: Conv2d, data: te.Tensor, channels: int | None = None) -> te.Tensor:
    """Returns NHWC data with its zero padding, computed by a block named ``pad``.

    Args:
        w: the convolution that reads it.
        data: NHWC.
        channels: number of channels of the result; additional ones are zero. By default as many as the data has.
    """
    top, left, bottom, right = w.padding
    channels = channels or w.in_channels
    shape = (w.batch, w.height + top + bottom, w.width + left + right, channels)

    def point(n: Any, y: Any, x: Any, c: Any) -> Any:
        within = [y >= top, y < w.height + top, x >= left, x < w.width + left]
        inside = tirx.all(*within, c < w.in_channels) if channels > w.in_channels else tirx.all(*within)
        return tirx.if_then_else(inside, data[n, y - top, x - left, c], tirx.const(0, w.dtype))

    return te.compute(shape, point, name="pad")


def convolve(
    w: Conv2d, data: te.Tensor, packed: te.Tensor, filters: int, columns: int | None = None, rows: int | None = None
) -> te.Tensor:
    """Returns the convolution of NHWC data with weights in panels, as NHWC; its block is marked as the anchor.

    Args:
        w: the convolution.
        data: NHWC.
        packed: (panels, kernel height, kernel width, in, panel width).
        filters: number of filters in all panels, including those that fill up the last panel.
        columns: number of columns of the result; any beyond the convolution's own are unused. By default there are none
            beyond.
        rows: number of rows of the result, likewise.
    """
    padded, panel = pad(w, data) if any(w.padding) else data, int(packed.shape[-1])
    rows, columns = rows or w.out_height, columns or w.out_width
    channels, filters_of_group = w.in_channels // w.groups, w.out_channels // w.groups
    rc = te.reduce_axis((0, channels), "rc")
    ry = te.reduce_axis((0, w.kernel[0]), "ry")
    rx = te.reduce_axis((0, w.kernel[1]), "rx")

    def point(n: Any, y: Any, x: Any, f: Any) -> Any:
        channel = rc if w.groups == 1 else f // filters_of_group * channels + rc
        row, column = y * w.strides[0] + ry * w.dilation[0], x * w.strides[1] + rx * w.dilation[1]
        if columns > w.out_width:
            column = tirx.min(column, w.width + w.padding[1] + w.padding[3] - 1)
        if rows > w.out_height:
            row = tirx.min(row, w.height + w.padding[0] + w.padding[2] - 1)
        value = padded[n, row, column, channel] * packed[f // panel, ry, rx, rc, f % panel]
        return te.sum(value, axis=[rc, ry, rx])

    shape = (w.batch, rows, columns, filters)
    return te.compute(shape, point, name="conv2d", attrs={ANCHOR: w.operator})


def scheduled(sch: s_tir.Schedule) -> tirx.PrimFunc:
    """Returns the only function of a schedule."""
    return sch.mod["main"]


def _inline_operands(sch: s_tir.Schedule, epilogue: SBlockRV, anchor: SBlockRV) -> None:
    """Inlines all blocks that the epilogue reads besides the anchor, and those that they read in turn."""
    own = sch.get_sref(anchor)
    while operands := [block for block in sch.get_producers(epilogue) if not sch.get_sref(block).same_as(own)]:
        for block in operands:
            sch.compute_inline(block)


def _blocks(sch: s_tir.Schedule) -> list[SBlockRV]:
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def _consumers(sch: s_tir.Schedule, block: SBlockRV) -> list[SBlockRV]:
    return list(sch.get_consumers(block))
