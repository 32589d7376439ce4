"""Scheduling steps shared by the CUDA templates: thread binding, staging in shared memory, the epilogue, unrolling."""

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
    """Bind loops to threads by name, such as ``threadIdx.x``."""
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
    """Split every spatial axis into (block, virtual thread, thread, inner) and stage both operands.

    The nest, outermost first: leading axes and blocks, virtual threads, threads, outer and inner reduction, inner tile.
    Adjacent threads (``threadIdx.x``) are along the last axis. Operands are staged in the innermost outer loop of the
    reduction or, if it has none, once.

    Args:
        sch: the schedule of the entire function.
        block: the block that multiplies.
        epilogue: the block that reads the products.
        leading: axes that only blocks iterate over, one step each.
        spatial: two or three axes, each with its four factors; one factor may be None, to be derived from the others.
        outer: outer loops of the reduction.
        inner: inner loops of the reduction.
        runs: for each operand, the length of runs that are contiguous both in it and in its copy.
        config: the config, for its unrolling knobs.
        inline: whether an operand's producer, such as padding, is computed during the copy rather than in an earlier
            kernel.
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
    for index, contiguous in enumerate(runs):
        _stage(sch, sch.cache_read(block, index, "shared"), (*threads, *outer)[-1], extents, contiguous, inline=inline)
    place_epilogue(sch, epilogue, threads[-1])
    unroll(sch, grid, config)
    sch.decompose_reduction(block, (*outer, *inner)[0])


def _stage(
    sch: s_tir.Schedule, copy: SBlockRV, loop: LoopRV, threads: Mapping[str, int], contiguous: int, *, inline: bool
) -> None:
    """Compute a copy in shared memory within a loop, by all threads of the block; `threads` are their axes' lengths."""
    for producer in sch.get_producers(copy) if inline else ():
        sch.compute_inline(producer)
    sch.compute_at(copy, loop, preserve_unit_loops=True)
    *axes, last = sch.get_loops(copy)[-len(sch.get(copy).iter_vars) :]
    lanes = gcd(contiguous, VECTOR)
    runs, vector = sch.split(last, [None, lanes])
    _, *thread_loops = sch.split(sch.fuse(*axes, runs), [None, *threads.values()])
    bind(sch, dict(zip(threads, thread_loops, strict=True)))
    if lanes > 1:
        sch.vectorize(vector)


def place_epilogue(sch: s_tir.Schedule, epilogue: SBlockRV, loop: LoopRV) -> None:
    """Compute the epilogue next to the accumulators."""
    sch.reverse_compute_at(epilogue, loop, preserve_unit_loops=True)
    vectorize(sch, epilogue)


def vectorize(sch: s_tir.Schedule, block: SBlockRV) -> None:
    """Vectorize a block's last axis, with the largest vector that divides its extent."""
    last = sch.get_loops(block)[-1]
    lanes = gcd(int(sch.get(last).extent), VECTOR)
    if lanes > 1:
        sch.vectorize(sch.split(last, [None, lanes])[1])


def unroll(sch: s_tir.Schedule, loop: LoopRV, config: Config) -> None:
    """Request unrolling inside a loop, by TVM or by the CUDA compiler, according to the config."""
    sch.annotate(loop, "pragma_auto_unroll_max_step", config["auto_unroll_max_step"])
    sch.annotate(loop, "pragma_unroll_explicit", config["unroll_explicit"])
