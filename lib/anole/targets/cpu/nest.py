"""Scheduling steps that the CPU's templates share: the anchor, its padding and its epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import s_tir, tirx

from anole.targets.base import ANCHOR

LoopRV = Any
SBlockRV = Any


def find_anchor(sch: s_tir.Schedule) -> SBlockRV:
    """Returns the anchor operator's block."""
    return next(block for block in _blocks(sch) if ANCHOR in sch.get(block).annotations)


def find_block(sch: s_tir.Schedule, name: str) -> SBlockRV | None:
    """Returns the block of a name, or None."""
    return next((block for block in _blocks(sch) if sch.get(block).name_hint == name), None)


def join_epilogue(sch: s_tir.Schedule, anchor: SBlockRV) -> SBlockRV:
    """Folds everything behind the anchor into one block and returns it.

    Where nothing follows the anchor, a copy out of the accumulators is made to follow.
    """
    consumers = _consumers(sch, anchor)
    if not consumers:
        sch.cache_write(anchor, 0, "global")
        consumers = _consumers(sch, anchor)
    while True:
        later = [block for block in consumers if sch.get_consumers(block)]
        if not later:
            return consumers[0]
        for block in later:
            sch.compute_inline(block)
        consumers = _consumers(sch, anchor)


def vectorize_epilogue(sch: s_tir.Schedule, epilogue: SBlockRV, depth: int, lanes: int) -> None:
    """Unrolls the epilogue's loops below a depth, a register tile, and vectorises the last of them."""
    *tile, last = sch.get_loops(epilogue)[depth:]
    extent = int(sch.get(last).extent)
    width = next(width for width in range(min(lanes, extent), 0, -1) if extent % width == 0)
    outer, inner = sch.split(last, [None, width])
    sch.vectorize(inner)
    for loop in (*tile, outer):
        sch.unroll(loop)


def vectorize_copy(sch: s_tir.Schedule, block: SBlockRV, lanes: int) -> None:
    """Vectorises the last axis of a copying block such as the padding, where it is long enough."""
    last = sch.get_loops(block)[-1]
    extent = sch.get(last).extent
    if not isinstance(extent, tirx.IntImm):
        return
    width = next((width for width in (2 * lanes, lanes, lanes // 2) if int(extent) % width == 0), None)
    if width:
        sch.vectorize(sch.split(last, [None, width])[1])


def unroll_reduction(sch: s_tir.Schedule, loops: Sequence[LoopRV], tile_steps: int, max_step: int) -> None:
    """Unrolls reduction loops, innermost first, while the unrolled body stays within `max_step` vector operations."""
    steps = tile_steps
    for loop in reversed(loops):
        steps *= int(sch.get(loop).extent)
        if steps > max_step:
            return
        sch.unroll(loop)


def scheduled(sch: s_tir.Schedule) -> tirx.PrimFunc:
    """Returns the only function of a schedule."""
    return sch.mod["main"]


def _blocks(sch: s_tir.Schedule) -> list[SBlockRV]:
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def _consumers(sch: s_tir.Schedule, block: SBlockRV) -> list[SBlockRV]:
    return list(sch.get_consumers(block))
