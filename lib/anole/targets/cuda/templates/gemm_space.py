"""The knobs of a dense layer of many rows on CUDA and the loop nest of a config; needs no compiler.

The nest, outermost first: blocks; virtual threads; threads; the outer reduction, each step of which stages a tile of
data and a tile of weights in shared memory; the inner reduction; the inner tile, whose accumulators stay in registers.
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
from anole.task import Dense

PRODUCT_AXES = ("tile_y", "tile_x", "tile_k")
"""The knobs of a product's rows, columns and reduction."""


@cache
def gemm_space(limits: BlockLimits, gpu: Multiprocessor, w: Dense) -> Space:
    """Returns the space of a dense layer of many rows.

    Knobs: ``tile_y`` splits the rows and ``tile_x`` the features into (block, virtual thread, thread, inner),
    ``tile_k`` the reduction into (outer, inner); ``auto_unroll_max_step`` and ``unroll_explicit`` as for convolutions.
    """
    knobs = product_knobs(w.batch, w.out_features, w.in_features)
    return limited_space(
        limits,
        knobs,
        product_usage,
        lambda columns: _nest(w, columns),
        lambda columns: speed(gpu, gemm_kernel(gpu, w, columns)),
    )


def product_knobs(rows: int, columns: int, inner: int) -> list[Knob]:
    """Returns the knobs of any matrix product of (rows, inner) by (inner, columns)."""
    return [
        split_knob("tile_y", rows, 4, agent="spatial"),
        split_knob("tile_x", columns, 4, agent="spatial"),
        split_knob("tile_k", inner, 2, agent="reduction"),
        option_knob("auto_unroll_max_step", (0, 512, 1500)),
        option_knob("unroll_explicit", (0, 1)),
    ]


def gemm_kernel(gpu: Multiprocessor, w: Dense, columns: Columns) -> Kernel:
    """Returns what the kernels of n configs do."""
    packed = columns["tile_x"][:, 1:].prod(axis=1) * columns["tile_k"][:, 1]
    fresh = FLOAT_BYTES * (w.batch * (w.in_features + w.out_features) + w.in_features * w.out_features)
    return product_kernel(gpu, product_usage(columns), columns, PRODUCT_AXES, packed, fresh * np.ones(len(packed)))


def product_usage(columns: Columns, batch: int = 1) -> Usage:
    """Returns the usage of a batch of products; each product has blocks of its own."""
    y, x, steps = columns["tile_y"], columns["tile_x"], columns["tile_k"][:, 1]
    staged = shared_bytes(y[:, 1:].prod(axis=1) * steps, x[:, 1:].prod(axis=1) * steps)
    return tiling.usage((y, x), batch, staged)


def _nest(w: Dense, columns: Columns) -> LoopNest:
    spatial = [("y", columns["tile_y"]), ("x", columns["tile_x"])]
    loops = tiling.loops([], spatial, [("k", columns["tile_k"])], columns["auto_unroll_max_step"])
    data = Buffer("data", (w.batch, w.in_features), ({"y": 1}, {"k": 1}))
    weight = Buffer("weight", (w.in_features, w.out_features), ({"k": 1}, {"x": 1}))
    return LoopNest(loops, (data, weight, Buffer("out", (w.batch, w.out_features), ({"y": 1}, {"x": 1}))))
