"""The knobs of a product of two computed tensors on CUDA and the loop nest of a config; needs no compiler.

The nest is that of a dense layer of many rows, with the batch in front of the blocks.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from anole.space import Space
from anole.space.loops import Buffer, LoopNest
from anole.space.space import Columns
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.device.multiprocessor import Multiprocessor
from anole.targets.cuda.templates import tiling
from anole.targets.cuda.templates.gemm_space import PRODUCT_AXES, product_knobs, product_usage
from anole.targets.cuda.templates.roofline import Kernel, speed
from anole.targets.cuda.templates.staged import product_kernel
from anole.targets.cuda.templates.usage import FLOAT_BYTES, limited_space
from anole.task import BatchMatmul


@cache
def batch_matmul_space(limits: BlockLimits, gpu: Multiprocessor, w: BatchMatmul) -> Space:
    """Returns the space of products of two computed tensors.

    Knobs: ``tile_y`` splits the rows and ``tile_x`` the columns into (block, virtual thread, thread, inner),
    ``tile_k`` the reduction into (outer, inner); ``auto_unroll_max_step`` and ``unroll_explicit`` as for convolutions.
    """
    knobs = product_knobs(w.rows, w.columns, w.inner)
    return limited_space(
        limits,
        knobs,
        lambda columns: product_usage(columns, w.batch),
        lambda columns: _nest(w, columns),
        lambda columns: speed(gpu, batch_matmul_kernel(gpu, w, columns)),
    )


def batch_matmul_kernel(gpu: Multiprocessor, w: BatchMatmul, columns: Columns) -> Kernel:
    """Returns what the kernels of n configs do."""
    x, steps = columns["tile_x"], columns["tile_k"][:, 1]
    wide = x[:, 1:].prod(axis=1)
    run = steps if w.transpose_right else np.where(x[:, 0] == 1, wide * steps, wide)
    fresh = FLOAT_BYTES * w.batch * (w.rows * w.inner + w.inner * w.columns + w.rows * w.columns)
    usage = product_usage(columns, w.batch)
    bytes_of_all = fresh * np.ones(len(steps))
    return product_kernel(gpu, usage, columns, PRODUCT_AXES, run, bytes_of_all, transposed=w.transpose_right)


def _nest(w: BatchMatmul, columns: Columns) -> LoopNest:
    spatial = [("y", columns["tile_y"]), ("x", columns["tile_x"])]
    loops = tiling.loops([("b", w.batch)], spatial, [("k", columns["tile_k"])], columns["auto_unroll_max_step"])
    data = Buffer("data", (w.batch, w.rows, w.inner), ({"b": 1}, {"y": 1}, {"k": 1}))
    if w.transpose_right:
        right = Buffer("right", (w.batch, w.columns, w.inner), ({"b": 1}, {"x": 1}, {"k": 1}))
    else:
        right = Buffer("right", (w.batch, w.inner, w.columns), ({"b": 1}, {"k": 1}, {"x": 1}))
    out = Buffer("out", (w.batch, w.rows, w.columns), ({"b": 1}, {"y": 1}, {"x": 1}))
    return LoopNest(loops, (data, right, out))
