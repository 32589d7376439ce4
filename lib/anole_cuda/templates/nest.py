"""Scheduling steps common to the CUDA templates: bound loops, staging in shared memory, the epilogue, unrolling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from tvm import s_tir

from anole.record import Config
from anole_cuda.templates.usage import VECTOR

LoopRV = Any
SBlockRV = Any


def bind(sch: s_tir.Schedule, loops: Mapping[str, LoopRV]) -> None:
    """Bind loops to the threads of their names, such as ``threadIdx.x``."""
    for thread, loop in loops.items():
        sch.bind(loop, thread)


def schedule_product(
    sch: s_tir.Schedule,
    block: SBlockRV,
    epilogue: SBlockRV,
    leading: Sequence[LoopRV],
    spatial: Sequence[tuple[LoopRV, Sequence[int | None]]],
    outer: Sequence[LoopRV],
    inner: Sequence[LoopRV],
    runs: tuple[int, int],
    config: Config,
    *,
    inline: bool = True,
) -> None:
    """Split every spatial axis into (block, virtual thread, thread, inner) and stages both operands.

    The nest, outermost first: leading axes and blocks, virtual threads, threads, outer and inner reduction, inner tile.
    Neighbouring threads (``threadIdx.x``) walk the last axis. Operands are staged in the innermost outer loop of the
    reduction or, if it has none, once.

    Args:
        sch: the schedule of the whole function.
        block: multiplies.
        epilogue: reads the products.
        leading: axes that only blocks walk, one step each.
        spatial: two or three axes, each with its four factors; one factor may be None, to be derived from the others.
        outer: outer loops of the reduction.
        inner: inner loops of the reduction.
        runs: lengths of the runs of each operand that are contiguous in both its copy and itself.
        config: says how to unroll.
        inline: whether an operand's producer, such as padding, is computed during the copy; otherwise in a kernel
            before.
    """
    blocks, virtual, threads, tile = zip(*(sch.split(loop, factors) for loop, factors in spatial), strict=True)
    sch.reorder(*leading, *blocks, *virtual, *threads, *outer, *inner, *tile)
    grid = sch.fuse(*leading, *blocks[:-1])
    letters = "zyx"[-len(spatial) :]
    axes = {f"threadIdx.{letter}": loop for letter, loop in zip(letters, threads, strict=True)}
    bind(sch, {"blockIdx.x": grid, "blockIdx.y": blocks[-1]})
    bind(sch, {f"vthread.{letter}": loop for letter, loop in zip(letters, virtual, strict=True)})
    bind(sch, axes)
    extents = {name: int(sch.get(loop).extent) for name, loop in axes.items()}
    for read, contiguous in enumerate(runs):
        _stage(sch, sch.cache_read(block, read, "shared"), (*threads, *outer)[-1], extents, contiguous, inline=inline)
    place_epilogue(sch, epilogue, threads[-1])
    unroll(sch, grid, config)
    sch.decompose_reduction(block, (*outer, *inner)[0])


def _stage(
    sch: s_tir.Schedule, copy: SBlockRV, at: LoopRV, threads: Mapping[str, int], contiguous: int, *, inline: bool
) -> None:
    """Make a copy in shared memory within a loop, by all threads of the block together, with axes of these lengths."""
    for producer in sch.get_producers(copy) if inline else ():
        sch.compute_inline(producer)
    sch.compute_at(copy, at, preserve_unit_loops=True)
    *axes, last = sch.get_loops(copy)[-len(sch.get(copy).iter_vars) :]
    lanes = gcd(contiguous, VECTOR)
    runs, vector = sch.split(last, [None, lanes])
    _, *bound = sch.split(sch.fuse(*axes, runs), [None, *threads.values()])
    bind(sch, dict(zip(threads, bound, strict=True)))
    if lanes > 1:
        sch.vectorize(vector)


def place_epilogue(sch: s_tir.Schedule, epilogue: SBlockRV, at: LoopRV) -> None:
    """Compute the epilogue next to the accumulators."""
    sch.reverse_compute_at(epilogue, at, preserve_unit_loops=True)
    vectorize(sch, epilogue)


def vectorize(sch: s_tir.Schedule, block: SBlockRV) -> None:
    """Let one instruction move as many values along a block's last axis as divide its extent."""
    last = sch.get_loops(block)[-1]
    lanes = gcd(int(sch.get(last).extent), VECTOR)
    if lanes > 1:
        sch.vectorize(sch.split(last, [None, lanes])[1])


def unroll(sch: s_tir.Schedule, loop: LoopRV, config: Config) -> None:
    """Request unrolling inside a loop, by TVM or by the CUDA compiler, as the config says."""
    sch.annotate(loop, "pragma_auto_unroll_max_step", config["auto_unroll_max_step"])
    sch.annotate(loop, "pragma_unroll_explicit", config["unroll_explicit"])
