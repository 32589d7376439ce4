"""The spaces of matrix products on CUDA (dense layers with many rows, batched matmul); needs no compiler.

The nest, outermost first: blocks, after any batch axis; virtual threads; threads; the outer reduction, which stages a
tile of data and a tile of weights in shared memory in each step; the inner reduction; the inner tile, whose
accumulators stay in registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from anole.space import Space
from anole.space.loops import Buffer, Ints, LoopNest
from anole.space.space import Columns
from anole.task import BatchMatmul, Dense
from anole_cuda.device.architecture import BlockLimits
from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.templates import tiling
from anole_cuda.templates.roofline import Kernel, Numbers, speed, widths
from anole_cuda.templates.staged import Reduction, Staged, staged_kernel
from anole_cuda.templates.usage import FLOAT_BYTES, Counts, Usage, limited_space, shared_bytes


@cache
def product_space(limits: BlockLimits, gpu: GpuSpecs, w: Dense | BatchMatmul) -> Space:
    """Return the space of a dense layer with many rows, or of a batched matmul of two activations.

    Knobs: ``tile_y`` splits the rows and ``tile_x`` the features into (block, virtual thread, thread, inner),
    ``tile_k`` the reduction into (outer, inner); ``auto_unroll_max_step`` and ``unroll_explicit`` as for convolutions.
    """
    batch = _as_batch(w)
    return limited_space(
        limits,
        tiling.tile_knobs({"tile_y": batch.rows, "tile_x": batch.columns}, {"tile_k": batch.inner}),
        lambda columns: _products(w, columns).usage(),
        lambda columns: _products(w, columns).nest("weight" if w.constant_weight else "right"),
        lambda columns: speed(gpu, product_kernel(gpu, w, columns)),
    )


def product_kernel(gpu: GpuSpecs, w: Dense | BatchMatmul, columns: Columns) -> Kernel:
    """Return the modeled kernels of n configs."""
    x, steps, batch = columns["tile_x"], columns["tile_k"][:, 1], _as_batch(w)
    n = x[:, 1:].prod(axis=1)
    if batch.transpose_right:
        run = steps
    else:
        # Constant weights are packed into panels, each read by one block.
        run = np.where(w.constant_weight | (x[:, 0] == 1), n * steps, n)
    values = batch.rows * batch.inner + batch.inner * batch.columns + batch.rows * batch.columns
    return _products(w, columns).kernel(gpu, run, FLOAT_BYTES * batch.batch * values * np.ones(len(steps)))


def _as_batch(w: Dense | BatchMatmul) -> BatchMatmul:
    """Return a dense layer as a batch of one product."""
    return w if isinstance(w, BatchMatmul) else BatchMatmul(1, w.batch, w.in_features, w.out_features)


def _products(w: Dense | BatchMatmul, columns: Columns) -> Products:
    splits = {axis: columns[f"tile_{axis}"] for axis in ("y", "x", "k")}
    if isinstance(w, Dense):
        return Products(splits, columns["auto_unroll_max_step"])
    return Products(splits, columns["auto_unroll_max_step"], {"b": w.batch}, w.transpose_right)


@dataclass(frozen=True, eq=False)
class Products:
    """The nests of n configs that multiply matrices of (rows, inner) by matrices of (inner, columns).

    Attributes:
        splits: the splits of rows and columns into (block, virtual thread, thread, inner), shape (n, 4) each, and of
            the reduction into (outer, inner), shape (n, 2), in this order, by axis name.
        max_step: maximum number of steps of an unrolled body, shape (n,).
        leading: lengths of the axes that only blocks iterate over, with one product per step.
        transposed: whether the right operand, and its staged copy, have the reduction as innermost axis.
    """

    splits: Mapping[str, NDArray[np.int64]]
    max_step: Counts
    leading: Mapping[str, Ints] = field(default_factory=dict)
    transposed: bool = False

    def usage(self) -> Usage:
        """Return the resource usage; each product has separate blocks."""
        y, x, k = self.splits.values()
        staged = shared_bytes(y[:, 1:].prod(axis=1) * k[:, 1], x[:, 1:].prod(axis=1) * k[:, 1])
        return tiling.usage((y, x), prod(self.leading.values()), staged)

    def kernel(self, gpu: GpuSpecs, right_run: Counts, fresh_bytes: Numbers) -> Kernel:
        """Return the modeled kernels.

        In global memory, `right_run` values of the right operand's stage are contiguous. `fresh_bytes` are the bytes of
        both operands and the output that are in memory rather than in the L2 cache.
        """
        y, x, k = self.splits.values()
        steps = k[:, 1]
        rows, features = y[:, 1] * y[:, 3], x[:, 1] * x[:, 3]
        m, n = y[:, 1:].prod(axis=1), x[:, 1:].prod(axis=1)
        is_unrolled = steps * y[:, 3] * x[:, 3] <= self.max_step
        reduction_width = np.where(is_unrolled, widths(steps), 1)
        zeros = np.zeros_like(steps)
        left = Staged(m * steps, steps, widths(steps), rows * steps, reduction_width, (zeros, y[:, 3] * steps))
        if self.transposed:
            right = Staged(
                n * steps, right_run, widths(steps), features * steps, reduction_width, (x[:, 3] * steps, zeros)
            )
        else:
            right = Staged(n * steps, right_run, widths(n), features * steps, widths(x[:, 3]), (x[:, 3], zeros))
        reduction = Reduction(k[:, 0], steps, is_unrolled)
        output_run = x[:, 2] * x[:, 3]
        threads, operands = (x[:, 2], y[:, 2]), (left, right)
        return staged_kernel(gpu, self.usage(), threads, rows * features, operands, reduction, output_run, fresh_bytes)

    def nest(self, right: str = "weight") -> LoopNest:
        """Return the loop nests; `right` is the name of the right operand's buffer."""
        (y, x, k), splits = self.splits, list(self.splits.items())
        loops = tiling.loops(list(self.leading.items()), splits[:2], splits[2:], self.max_step)
        lengths = {**self.leading, **{axis: split.prod(axis=1) for axis, split in splits}}

        def buffer(name: str, *axes: str) -> Buffer:
            index = (*self.leading, *axes)
            return Buffer(name, tuple(lengths[axis] for axis in index), tuple({axis: 1} for axis in index))

        operands = buffer("data", y, k), buffer(right, *((x, k) if self.transposed else (k, x)))
        return LoopNest(loops, (*operands, buffer("out", y, x)))
