"""The knobs of matrix products on CUDA, of dense layers of many rows or computed tensors; needs no compiler.

The nest, outermost first: blocks, with any batch in front; virtual threads; threads; the outer reduction, each step of
which stages a tile of data and a tile of weights in shared memory; the inner reduction; the inner tile, whose
accumulators stay in registers.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from anole.space import Knob, Space, option_knob, split_knob
from anole.space.loops import Buffer, LoopNest
from anole.space.space import Columns
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.device.multiprocessor import Multiprocessor
from anole.targets.cuda.templates import tiling
from anole.targets.cuda.templates.roofline import Kernel, speed
from anole.targets.cuda.templates.staged import product_kernel
from anole.targets.cuda.templates.usage import FLOAT_BYTES, Usage, limited_space, shared_bytes
from anole.task import BatchMatmul, Dense

_AXES = ("tile_y", "tile_x", "tile_k")


@cache
def gemm_space(limits: BlockLimits, gpu: Multiprocessor, w: Dense) -> Space:
    """Returns the space of a dense layer of many rows.

    Knobs: ``tile_y`` splits the rows and ``tile_x`` the features into (block, virtual thread, thread, inner),
    ``tile_k`` the reduction into (outer, inner); ``auto_unroll_max_step`` and ``unroll_explicit`` as for convolutions.
    """
    return limited_space(
        limits,
        _knobs(w.batch, w.out_features, w.in_features),
        _usage,
        lambda columns: _gemm_nest(w, columns),
        lambda columns: speed(gpu, gemm_kernel(gpu, w, columns)),
    )


@cache
def batch_matmul_space(limits: BlockLimits, gpu: Multiprocessor, w: BatchMatmul) -> Space:
    """Returns the space of products of two computed tensors, with the knobs of `gemm_space`."""
    return limited_space(
        limits,
        _knobs(w.rows, w.columns, w.inner),
        lambda columns: _usage(columns, w.batch),
        lambda columns: _batch_matmul_nest(w, columns),
        lambda columns: speed(gpu, batch_matmul_kernel(gpu, w, columns)),
    )


def _knobs(rows: int, columns: int, inner: int) -> list[Knob]:
    """Returns the knobs of any matrix product of (rows, inner) by (inner, columns)."""
    return [
        split_knob("tile_y", rows, 4, agent="spatial"),
        split_knob("tile_x", columns, 4, agent="spatial"),
        split_knob("tile_k", inner, 2, agent="reduction"),
        option_knob("auto_unroll_max_step", (0, 512, 1500)),
        option_knob("unroll_explicit", (0, 1)),
    ]


def gemm_kernel(gpu: Multiprocessor, w: Dense, columns: Columns) -> Kernel:
    """Returns what the kernels of n configs of a dense layer do."""
    packed = columns["tile_x"][:, 1:].prod(axis=1) * columns["tile_k"][:, 1]
    fresh = FLOAT_BYTES * (w.batch * (w.in_features + w.out_features) + w.in_features * w.out_features)
    return product_kernel(gpu, _usage(columns), columns, _AXES, packed, fresh * np.ones(len(packed)))


def batch_matmul_kernel(gpu: Multiprocessor, w: BatchMatmul, columns: Columns) -> Kernel:
    """Returns what the kernels of n configs of products of computed tensors do."""
    x, steps = columns["tile_x"], columns["tile_k"][:, 1]
    wide = x[:, 1:].prod(axis=1)
    run = steps if w.transpose_right else np.where(x[:, 0] == 1, wide * steps, wide)
    fresh = FLOAT_BYTES * w.batch * (w.rows * w.inner + w.inner * w.columns + w.rows * w.columns)
    bytes_of_all, usage = fresh * np.ones(len(steps)), _usage(columns, w.batch)
    return product_kernel(gpu, usage, columns, _AXES, run, bytes_of_all, transposed=w.transpose_right)


def _usage(columns: Columns, batch: int = 1) -> Usage:
    """Returns the usage of a batch of products; each product has blocks of its own."""
    y, x, steps = columns["tile_y"], columns["tile_x"], columns["tile_k"][:, 1]
    staged = shared_bytes(y[:, 1:].prod(axis=1) * steps, x[:, 1:].prod(axis=1) * steps)
    return tiling.usage((y, x), batch, staged)


def _gemm_nest(w: Dense, columns: Columns) -> LoopNest:
    spatial = [("y", columns["tile_y"]), ("x", columns["tile_x"])]
    loops = tiling.loops([], spatial, [("k", columns["tile_k"])], columns["auto_unroll_max_step"])
    data = Buffer("data", (w.batch, w.in_features), ({"y": 1}, {"k": 1}))
    weight = Buffer("weight", (w.in_features, w.out_features), ({"k": 1}, {"x": 1}))
    return LoopNest(loops, (data, weight, Buffer("out", (w.batch, w.out_features), ({"y": 1}, {"x": 1}))))


def _batch_matmul_nest(w: BatchMatmul, columns: Columns) -> LoopNest:
    spatial = [("y", columns["tile_y"]), ("x", columns["tile_x"])]
    loops = tiling.loops([("b", w.batch)], spatial, [("k", columns["tile_k"])], columns["auto_unroll_max_step"])
    data = Buffer("data", (w.batch, w.rows, w.inner), ({"b": 1}, {"y": 1}, {"k": 1}))
    if w.transpose_right:
        right = Buffer("right", (w.batch, w.columns, w.inner), ({"b": 1}, {"x": 1}, {"k": 1}))
    else:
        right = Buffer("right", (w.batch, w.inner, w.columns), ({"b": 1}, {"k": 1}, {"x": 1}))
    out = Buffer("out", (w.batch, w.rows, w.columns), ({"b": 1}, {"y": 1}, {"x": 1}))
    return LoopNest(loops, (data, right, out))
