"""Schedules of single loop nests on the CPU: a spatial block with the reductions that feed it, or a row reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import prod
from typing import Any

from tvm import s_tir, tirx

from anole.targets.cpu.default.memory_access import Axis, Block, describe_block
from anole.targets.cpu.device.lowering import PARTITION

MIN_PARALLEL_WORK = 1 << 14
"""Number of iterations below which waking other threads costs more than it saves."""

N_ACCUMULATORS = 4
"""Independent vectors in flight, to hide the latency of an addition."""

_MAX_CHUNKS = 64
"""Maximum number of chunks into which one long reduction is split to be shared by threads."""

LoopRV = Any
SBlockRV = Any


@dataclass(frozen=True)
class Machine:
    """The properties of a CPU that the default schedule uses.

    Attributes:
        vector_bytes: width of a vector register.
        varies: whether a function has dynamic sizes, for which only a single vector is sure to fit.
    """

    threads: int
    vector_bytes: int
    varies: bool = False

    def lanes(self, *blocks: Block) -> int:
        """Return the number of the blocks' widest elements that fit a register."""
        return max(1, self.vector_bytes // max(block.lane_bytes for block in blocks))


def schedule_spatial(schedule: s_tir.Schedule, rv: SBlockRV, producers: Sequence[SBlockRV], machine: Machine) -> None:
    """Vectorize a spatial block along its most contiguous axis, and run outer loops in parallel.

    `producers` are reductions whose results only this block reads, element by element; they are computed just outside
    the vector loop, with their accumulators in registers.
    """
    block, reductions = block_properties(schedule, rv), [block_properties(schedule, producer) for producer in producers]
    lanes = machine.lanes(block, *reductions)
    work = block.work + sum(reduction.work for reduction in reductions)
    loops, axes = list(schedule.get_loops(rv)), _joined_axes(block, reductions)
    if not producers and not block.branches:
        loops, axes = collapse(schedule, loops, axes)
    collapsed = len(axes) < len(block.axes)
    position = max(range(len(axes)), key=lambda i: _vector_benefit(axes[i], lanes))
    if axes[position].store not in (0, 1) and not producers:
        # LLVM interleaves the few channels of an image faster than scattered vector stores would.
        if work >= MIN_PARALLEL_WORK:
            run_in_parallel(schedule, loops[:-1] or loops, machine)
        return
    widest = lanes * (N_ACCUMULATORS if producers else 1)
    width = even_width(axes[position].extent, widest, lanes, powers_only=any(each.branches for each in reductions))
    crossing = None if producers else _crossing(axes, position, lanes)
    outer, split_loop, vector = _tile(schedule, loops, position, width, crossing)
    has_tail = axes[position].extent % width != 0
    if work >= MIN_PARALLEL_WORK:
        is_single = prod(_extent(schedule, loop) for loop in outer) == 1
        if is_single or not has_tail:
            *_, split_loop = run_in_parallel(schedule, [*outer, split_loop], machine)
        else:
            run_in_parallel(schedule, outer, machine)
    for producer in producers:
        accumulate(schedule, producer, split_loop, width)
    schedule.vectorize(vector)
    if has_tail or collapsed:
        schedule.annotate(split_loop, PARTITION, 1)


def schedule_row_reduction(schedule: s_tir.Schedule, rv: SBlockRV, machine: Machine) -> None:
    """Schedule a reduction along a contiguous axis: first to a vector of partial results per row, then over lanes."""
    _join_axes(schedule, rv)
    block = block_properties(schedule, rv)
    loops, axes = collapse(schedule, list(schedule.get_loops(rv)), list(block.axes))
    position = row_axis(axes)
    if position is None:
        return
    rows = [loop for loop, axis in zip(loops, axes, strict=True) if not axis.reduction]
    n_rows, extent = prod(axis.extent for axis in axes if not axis.reduction), axes[position].extent
    threads = machine.threads
    chunks = next((n for n in range(_MAX_CHUNKS, threads - 1, -1) if extent % n == 0 and n % threads == 0), 1)
    if n_rows < threads and block.work >= MIN_PARALLEL_WORK and chunks > 1:
        chunk, _ = schedule.split(loops[position], [chunks, None])
        schedule_row_reduction(schedule, schedule.rfactor(chunk, len(rows)), machine)
        return
    lanes = machine.lanes(block)
    width = (
        lanes if machine.varies else even_width(extent, lanes * (N_ACCUMULATORS if extent >= 64 * lanes else 1), lanes)
    )
    steps, vector = schedule.split(loops[position], [None, width])
    other_loops = [loop for i, loop in enumerate(loops) if axes[i].reduction and i != position]
    schedule.reorder(*rows, *other_loops, steps, vector)
    partial_block = schedule.rfactor(vector, len(rows))
    parallel = block.work >= MIN_PARALLEL_WORK and n_rows > 1
    if machine.varies or extent % width or not rows:
        # compute_at would lose the predicate of the last, partial step, so the partial block gets separate loops.
        _vectorize_partial(schedule, partial_block, len(rows), parallel, machine)
    else:
        *_, row = run_in_parallel(schedule, rows, machine) if parallel else rows
        accumulate(schedule, partial_block, row, width)
    schedule.decompose_reduction(rv, schedule.get_loops(rv)[-1])


def row_axis(axes: Sequence[Axis]) -> int | None:
    """Return the reduction axis to vectorize along, or None if a spatial axis is contiguous."""
    if any(not axis.reduction and axis.extent >= 4 and axis.contiguous_loads for axis in axes):
        return None
    rows = (i for i in reversed(range(len(axes))) if axes[i].reduction and axes[i].contiguous_loads)
    return next((i for i in rows if axes[i].extent >= 4), None)


def run_in_parallel(schedule: s_tir.Schedule, loops: Sequence[LoopRV], machine: Machine) -> list[LoopRV]:
    """Fuse outermost loops until threads can share them evenly; return the parallel loop and the remaining loops."""
    sizes = [prod(_extent(schedule, loop) for loop in loops[:n]) for n in range(1, len(loops) + 1)]
    threads = machine.threads
    even = (n >= 16 * threads or (n >= threads and n % threads == 0) for n in sizes)
    count = next((at for at, is_even in enumerate(even, 1) if is_even), len(loops))
    fused = schedule.fuse(*loops[:count]) if count > 1 else loops[0]
    schedule.parallel(fused)
    return [fused, *loops[count:]]


def collapse(schedule: s_tir.Schedule, loops: list[LoopRV], axes: list[Axis]) -> tuple[list[LoopRV], list[Axis]]:
    """Fuse adjacent loops that access memory like a single loop."""
    for position in reversed(range(1, len(axes))):
        outer, inner = axes[position - 1], axes[position]
        if outer.wraps(inner):
            axes = [*axes[: position - 1], outer.merge(inner), *axes[position + 1 :]]
            fused = schedule.fuse(loops[position - 1], loops[position])
            loops = [*loops[: position - 1], fused, *loops[position + 1 :]]
    return loops, axes


def _join_axes(schedule: s_tir.Schedule, rv: SBlockRV) -> None:
    """Join the axes of a block that reduces an entire tensor, since a block made by rfactor keeps all axes."""
    axes = block_properties(schedule, rv).axes
    if len(axes) == 1 or not all(axis.reduction for axis in axes):
        return
    if not all(outer.wraps(inner) for outer, inner in pairwise(axes)):
        return

    def flat(*at: Any) -> list[Any]:
        return [
            reduce(lambda total, pair: total * pair[0] + pair[1], zip([a.extent for a in axes], at, strict=True), 0)
        ]

    schedule.transform_block_layout(rv, tirx.IndexMap.from_func(flat, ndim=len(axes)))


def even_width(extent: int, widest: int, lanes: int, *, powers_only: bool = False) -> int:
    """Return the vector width that minimizes the steps over an extent.

    A remainder, where the width does not divide the extent, is processed element by element, at twice the cost. With
    `powers_only`, the width is a power of two: between conditions, LLVM keeps other vectors as single elements.
    """
    if extent <= lanes:
        return extent

    def steps(width: int) -> int:
        return extent // width * -(-width // lanes) + 2 * (extent % width)

    widths = [width for width in range(4, min(widest, extent) + 1, 4) if width % lanes == 0 or extent % width == 0]
    if powers_only:
        widths = [width for width in widths if width.bit_count() == 1]
    return min(widths or [lanes], key=lambda width: (steps(width), extent % width != 0, -width))


def _tile(
    schedule: s_tir.Schedule, loops: Sequence[LoopRV], position: int, width: int, crossing: tuple[int, int] | None
) -> tuple[list[LoopRV], LoopRV, LoopRV]:
    """Split the vector off the loop at a position and move it innermost, inside a tile of the crossing loop, if any.

    Return the outer loops, the loop that was split, and the vector loop.
    """
    outer = [loop for i, loop in enumerate(loops) if i != position]
    split_loop, vector = schedule.split(loops[position], [None, width])
    inner = [vector]
    if crossing is not None:
        index, extent = crossing
        rest, tile = schedule.split(loops[index], [None, extent])
        outer = [rest if loop is loops[index] else loop for loop in outer]
        inner = [tile, vector]
    schedule.reorder(*outer, split_loop, *inner)
    return outer, split_loop, vector


def accumulate(schedule: s_tir.Schedule, rv: SBlockRV, at: LoopRV, width: int) -> None:
    """Compute a reduction inside a loop, with vector accumulators."""
    schedule.compute_at(rv, at)
    inner_loops = loops_inside(schedule, rv, at)
    lanes = inner_loops.pop(0) if width > 1 else None
    if lanes is not None:
        schedule.reorder(*inner_loops, lanes)
        schedule.vectorize(lanes)
    if inner_loops:
        schedule.decompose_reduction(rv, inner_loops[0])


def loops_inside(schedule: s_tir.Schedule, rv: SBlockRV, at: LoopRV) -> list[LoopRV]:
    """Return a block's loops that are inside a given loop."""
    loops = schedule.get_loops(rv)
    depth = next(i for i, loop in enumerate(loops, 1) if schedule.get(loop).same_as(schedule.get(at)))
    return list(loops[depth:])


def _vectorize_partial(schedule: s_tir.Schedule, rv: SBlockRV, n_rows: int, parallel: bool, machine: Machine) -> None:
    loops = schedule.get_loops(rv)
    steps, vector = loops[-2:]
    if parallel:
        run_in_parallel(schedule, loops[:n_rows], machine)
    schedule.vectorize(vector)
    schedule.annotate(steps, PARTITION, 1)
    schedule.decompose_reduction(rv, loops[n_rows])


def _joined_axes(block: Block, reductions: Sequence[Block]) -> list[Axis]:
    """Return the axes of a spatial block, extended by the strides of the feeding reductions' loads."""
    merged = list(block.axes)
    for reduction in reductions:
        spatial = [axis for axis in reduction.axes if not axis.reduction]
        merged = [
            Axis(axis.extent, False, axis.store, axis.loads + loading.loads)
            for axis, loading in zip(merged, spatial, strict=True)
        ]
    return merged


def _vector_benefit(axis: Axis, lanes: int) -> tuple[float, bool]:
    contiguous = sum(stride in (0, 1) for stride in axis.strides) / len(axis.strides)
    return min(axis.extent, lanes) * contiguous, axis.store == 1


def _crossing(axes: Sequence[Axis], position: int, lanes: int) -> tuple[int, int] | None:
    """Return another axis along which loads are contiguous, as in a transposition, and its tile size."""
    if axes[position].contiguous_loads:
        return None
    for i, axis in enumerate(axes):
        tile = next((lanes >> shift for shift in range(3) if axis.extent % max(lanes >> shift, 1) == 0), 1)
        if i != position and 1 in axis.loads and tile >= 4:
            return i, tile
    return None


def block_properties(schedule: s_tir.Schedule, rv: SBlockRV) -> Block:
    """Return a block's properties; raise ValueError if it is not a single store with constant extents."""
    block = describe_block(schedule.get(rv))
    if block is None:
        raise ValueError(f"block {schedule.get(rv).name_hint} is not a single store with constant extents")
    return block


def _extent(schedule: s_tir.Schedule, loop: LoopRV) -> int:
    return int(schedule.get(loop).extent)
