"""Scheduling steps common to the CPU templates: vectors, copies, unrolled loops and prefetches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, s_tir, tirx

from anole.targets.cpu.device.vector_unit import FLOAT_BYTES
from anole.targets.cpu.templates.register_tiles import CACHE_LINE_BYTES
from anole.targets.shared.anchor import find_block
from anole.targets.shared.nodes import collect, prefetched, with_loop, with_values

LoopRV = Any
SBlockRV = Any


def vectorize_epilogue(sch: s_tir.Schedule, epilogue: SBlockRV, depth: int, lanes: int) -> None:
    """Unrolls the epilogue's loops below a depth, which are a register tile, and vectorises the last of them."""
    *tile, last = sch.get_loops(epilogue)[depth:]
    extent = int(sch.get(last).extent)
    width = next(width for width in range(min(lanes, extent), 0, -1) if extent % width == 0)
    outer, inner = sch.split(last, [None, width])
    sch.vectorize(inner)
    for loop in (*tile, outer):
        sch.unroll(loop)


def vectorize_copy(sch: s_tir.Schedule, block: SBlockRV, lanes: int) -> None:
    """Vectorises the last axis of a copying block, such as the padding, if it is long enough."""
    last = sch.get_loops(block)[-1]
    extent = sch.get(last).extent
    if not isinstance(extent, tirx.IntImm):
        return
    width = next((width for width in (2 * lanes, lanes, lanes // 2) if int(extent) % width == 0), None)
    if width:
        sch.vectorize(sch.split(last, [None, width])[1])


def place_padding(sch: s_tir.Schedule, pad_at: str, parallel: LoopRV, lanes: int) -> None:
    """Places the computation of any padding: inlined, inside the parallel loop, or before it (``root``)."""
    pad = find_block(sch, "pad")
    if pad is None:
        return
    if pad_at == "inline":
        sch.compute_inline(pad)
    else:
        place_copy(sch, pad, parallel if pad_at == "parallel" else None, lanes)


def place_copy(sch: s_tir.Schedule, block: SBlockRV, loop: LoopRV | None, lanes: int) -> None:
    """Places a copying block, such as the padding, inside a loop or, if that is None, first of all and in parallel."""
    if loop is not None:
        sch.compute_at(block, loop)
    vectorize_copy(sch, block, lanes)
    if loop is None:
        batch, row = sch.get_loops(block)[:2]
        sch.parallel(sch.fuse(batch, row))


def unroll_reduction(sch: s_tir.Schedule, loops: Sequence[LoopRV], tile_steps: int, max_step: int) -> None:
    """Unrolls reduction loops, innermost first, while the unrolled body stays within `max_step` vector operations."""
    steps = tile_steps
    for loop in reversed(loops):
        steps *= int(sch.get(loop).extent)
        if steps > max_step:
            return
        sch.unroll(loop)


def prefetch(func: tirx.PrimFunc, loop: tirx.For, later: Callable[..., Sequence[Any]], lines: int) -> tirx.PrimFunc:
    """Returns a function in which each iteration of a loop begins with prefetches of weights that it reads later.

    Args:
        func: the function.
        loop: a loop with only one block, whose packed weights have more dimensions than all else that it reads.
        later: maps the indices of the first weight that an iteration reads to those of the first one to prefetch.
        lines: number of cache lines to prefetch.
    """
    (realize,) = collect(loop.body, s_tir.SBlockRealize)
    begun = {each.loop_var: tirx.IntImm(each.loop_var.ty.dtype, 0) for each in collect(loop.body, tirx.For)}
    weight = max(collect(realize.block.body, ir.TensorLoad), key=lambda load: len(load.indices))
    bound = {own.var: value for own, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    *outer, last = later(*(with_values(with_values(index, bound), begun) for index in weight.indices))
    line = tirx.Var("line", "int32")
    load = tirx.BufferLoad(weight.source, [*outer, last + line * (CACHE_LINE_BYTES // FLOAT_BYTES)])
    wanted = tirx.For(line, 0, lines, tirx.ForKind.SERIAL, tirx.Evaluate(prefetched(load, level=2)))

    def begin(each: tirx.For) -> tirx.For:
        return tirx.For(each.loop_var, each.min, each.extent, each.kind, tirx.SeqStmt([wanted, each.body]))

    return with_loop(func, loop, begin)
