"""Scheduling steps common to the CUDA templates: bound loops, staging in shared memory, the epilogue, unrolling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir

from anole.record import Config

LoopRV = Any
SBlockRV = Any

VECTOR = 4
"""The most float32 values that one memory instruction moves."""


def bind(sch: s_tir.Schedule, loops: Mapping[str, LoopRV]) -> None:
    """Binds loops to the threads of their names, such as ``threadIdx.x``."""
    for thread, loop in loops.items():
        sch.bind(loop, thread)


@dataclass(frozen=True)
class Tiles:
    """The bound loops of a tiled nest.

    Attributes:
        grid: blocks of all axes except the last, as ``blockIdx.x``.
        threads: the loops of every thread axis, outermost first.
        extents: the length of each thread loop, by its name.
    """

    grid: LoopRV
    threads: Sequence[LoopRV]
    extents: Mapping[str, int]


def bind_tiles(
    sch: s_tir.Schedule,
    leading: Sequence[LoopRV],
    spatial: Sequence[tuple[LoopRV, Sequence[int | None]]],
    outer: Sequence[LoopRV],
    inner: Sequence[LoopRV],
) -> Tiles:
    """Splits every spatial axis into (block, virtual thread, thread, inner), orders the nest and binds its loops.

    The nest, outermost first: leading axes and blocks, virtual threads, threads, outer and inner reduction, inner tile.
    Neighbouring threads (``threadIdx.x``) walk the last axis.

    Args:
        sch: the schedule of the whole function.
        leading: axes that only blocks walk, one step each.
        spatial: up to three axes, each with its four factors; one factor may be None, to be derived from the others.
        outer: outer loops of the reduction.
        inner: inner loops of the reduction.
    """
    parts = [sch.split(loop, factors) for loop, factors in spatial]
    blocks, virtual, threads, tile = zip(*parts, strict=True)
    sch.reorder(*leading, *blocks, *virtual, *threads, *outer, *inner, *tile)
    grid = sch.fuse(*leading, *blocks[:-1])
    letters = "zyx"[-len(spatial) :]
    axes = {f"threadIdx.{letter}": loop for letter, loop in zip(letters, threads, strict=True)}
    bind(sch, {"blockIdx.x": grid, "blockIdx.y": blocks[-1]})
    bind(sch, {f"vthread.{letter}": loop for letter, loop in zip(letters, virtual, strict=True)})
    bind(sch, axes)
    return Tiles(grid, threads, {name: int(sch.get(loop).extent) for name, loop in axes.items()})


def stage(
    sch: s_tir.Schedule,
    anchor: SBlockRV,
    read: int,
    at: LoopRV,
    threads: Mapping[str, int],
    contiguous: int,
    *,
    inline: bool = True,
) -> None:
    """Copies the part of an input that a tile reads into shared memory, by all threads of the block together.

    Args:
        sch: the schedule of the whole function.
        anchor: the block whose input is copied.
        read: index of that input.
        at: the loop in which the copy is made.
        threads: length of the loop over every thread axis, innermost last.
        contiguous: length of the runs that are contiguous in both the copy and the input.
        inline: whether the input's producer, such as padding, is computed during the copy; otherwise in a kernel
            before.
    """
    copy = sch.cache_read(anchor, read, "shared")
    for producer in sch.get_producers(copy) if inline else ():
        sch.compute_inline(producer)
    sch.compute_at(copy, at, preserve_unit_loops=True)
    *axes, last = sch.get_loops(copy)[-len(sch.get(copy).iter_vars) :]
    lanes = vector_width(contiguous)
    runs, vector = sch.split(last, [None, lanes])
    _, *bound = sch.split(sch.fuse(*axes, runs), [None, *threads.values()])
    bind(sch, dict(zip(threads, bound, strict=True)))
    if lanes > 1:
        sch.vectorize(vector)


def vector_width(contiguous: int) -> int:
    """Returns how many values one instruction may move in contiguous runs of this length."""
    return next(lanes for lanes in (VECTOR, 2, 1) if contiguous % lanes == 0)


def place_epilogue(sch: s_tir.Schedule, epilogue: SBlockRV, at: LoopRV) -> None:
    """Computes the epilogue next to the accumulators, and vectorises its last axis if the extent divides."""
    sch.reverse_compute_at(epilogue, at, preserve_unit_loops=True)
    last = sch.get_loops(epilogue)[-1]
    lanes = vector_width(int(sch.get(last).extent))
    if lanes > 1:
        sch.vectorize(sch.split(last, [None, lanes])[1])


def unroll(sch: s_tir.Schedule, loop: LoopRV, config: Config) -> None:
    """Requests unrolling inside a loop, by TVM or by the CUDA compiler, as the config says."""
    sch.annotate(loop, "pragma_auto_unroll_max_step", config["auto_unroll_max_step"])
    sch.annotate(loop, "pragma_unroll_explicit", config["unroll_explicit"])
