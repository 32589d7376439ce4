"""The anchor operator in a function that is scheduled: where it is, what leads to it and what follows it."""

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
    """Returns the block of a name, or None."""
    return next((block for block in _blocks(sch) if sch.get(block).name_hint == name), None)


def join_epilogue(sch: s_tir.Schedule, anchor: SBlockRV, scope: str = "global") -> SBlockRV:
    """Folds everything behind the anchor into one block and returns it.

    Args:
        sch: of the whole function.
        anchor: the block whose result goes into the epilogue.
        scope: where the accumulators are. Where nothing follows the anchor, a copy out of them is made to follow.
    """
    consumers = _consumers(sch, anchor)
    if not consumers:
        sch.cache_write(anchor, 0, scope)
        consumers = _consumers(sch, anchor)
    elif scope != "global":
        sch.set_scope(anchor, 0, scope)
    while True:
        later = [block for block in consumers if sch.get_consumers(block)]
        if not later:
            return consumers[0]
        for block in later:
            sch.compute_inline(block)
        consumers = _consumers(sch, anchor)


def pad(w: Conv2d, data: te.Tensor) -> te.Tensor:
    """Returns NHWC data within its border of zeros, by a block named ``pad``."""
    top, left, bottom, right = w.padding
    shape = (w.batch, w.height + top + bottom, w.width + left + right, w.in_channels)

    def point(n: Any, y: Any, x: Any, c: Any) -> Any:
        inside = tirx.all(y >= top, y < w.height + top, x >= left, x < w.width + left)
        return tirx.if_then_else(inside, data[n, y - top, x - left, c], tirx.const(0, w.dtype))

    return te.compute(shape, point, name="pad")


def scheduled(sch: s_tir.Schedule) -> tirx.PrimFunc:
    """Returns the only function of a schedule."""
    return sch.mod["main"]


def _blocks(sch: s_tir.Schedule) -> list[SBlockRV]:
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def _consumers(sch: s_tir.Schedule, block: SBlockRV) -> list[SBlockRV]:
    return list(sch.get_consumers(block))
