"""How many blocks of channels a tile has: the rule that fills the buffers, for many configs at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from anole.space.knob import divisors
from anole.targets.vta.geometry import Geometry, Memory
from anole.targets.vta.templates.conv2d import MOST_BORDER, MOST_SIZE, MOST_STEPS, Bias, EpilogueStep, Residual
from anole.task import Conv2d

Ints = NDArray[np.int64]
"""One number for each of n configs, shape (n,)."""


@dataclass(frozen=True, eq=False)
class Mapped:
    """Threads, tiles and accelerators of n configs, each of shape (n,).

    Attributes:
        batch, block_in, block_out: the block of the matrix unit.
        inp, wgt, acc: how many elements the buffers hold.
        h_threads, oc_threads, tile_h, tile_w: as in `Schedule`.
    """

    batch: Ints
    block_in: Ints
    block_out: Ints
    inp: Ints
    wgt: Ints
    acc: Ints
    h_threads: Ints
    oc_threads: Ints
    tile_h: Ints
    tile_w: Ints

    def __getitem__(self, rows: NDArray[np.bool_]) -> Mapped:
        return Mapped(*(getattr(self, field.name)[rows] for field in fields(self)))


def limits_of(geometries: Sequence[Geometry | None]) -> Ints:
    """Returns the first six fields of `Mapped` of n accelerators, shape (n, 6); zeros for None."""
    rows = [(0,) * 6 if each is None else _limits(each) for each in geometries]
    return np.array(rows, dtype=np.int64).reshape(-1, 6)


def _limits(g: Geometry) -> tuple[int, ...]:
    return (g.batch, g.block_in, g.block_out, *(g.depth(memory) for memory in (Memory.INP, Memory.WGT, Memory.ACC)))


def blocks_that_fit(w: Conv2d, mapped: Mapped, epilogue: Sequence[EpilogueStep]) -> tuple[Ints, Ints]:
    """Returns the blocks of input and of output channels of a tile, 0 where the accelerator cannot run it.

    A tile has as many blocks of output channels as fit, and then as many blocks of input channels as fit. What fits is
    what `check_schedule` accepts.

    Args:
        w: the convolution, with any number of channels: they are filled up to whole blocks.
        mapped: the configs.
        epilogue: what follows the convolution; it needs accumulators, too.
    """
    blocks_ci, blocks_co = np.zeros((2, len(mapped.batch)), dtype=np.int64)
    if not _can_be_lowered(w):
        return blocks_ci, blocks_co
    # Accelerators that cannot be made have a batch of 0.
    rows = (mapped.batch > 0) & (w.batch % np.maximum(mapped.batch, 1) == 0)
    rows &= (w.out_height % mapped.tile_h == 0) & (w.out_width % mapped.tile_w == 0)
    rows &= w.out_height // mapped.tile_h % mapped.h_threads == 0
    fit = _Fit(w, mapped[rows], epilogue)
    one = np.ones(np.count_nonzero(rows), dtype=np.int64)
    blocks_co[rows] = tile_co = _largest(fit.all_co, lambda n: fit(one, n * one))
    blocks_ci[rows] = _largest(fit.all_ci, lambda n: fit(n * one, tile_co)) * (tile_co > 0)
    return blocks_ci, blocks_co


def _can_be_lowered(w: Conv2d) -> bool:
    plain = w.groups == 1 and w.dilation == (1, 1)
    return plain and max(w.padding) <= MOST_BORDER and w.height * w.width <= MOST_SIZE


class _Fit:
    """Which numbers of blocks fit some configs; everything else about these configs is possible."""

    def __init__(self, w: Conv2d, mapped: Mapped, epilogue: Sequence[EpilogueStep]) -> None:
        self.w, self.m = w, mapped
        self.all_ci, self.all_co = -(-w.in_channels // mapped.block_in), -(-w.out_channels // mapped.block_out)
        rows_in = (mapped.tile_h - 1) * w.strides[0] + w.kernel[0]
        columns_in = (mapped.tile_w - 1) * w.strides[1] + w.kernel[1]
        contexts = mapped.h_threads * mapped.oc_threads
        n_bias, n_residual = (sum(isinstance(step, kind) for step in epilogue) for kind in (Bias, Residual))
        self.taps, self.pixels = w.kernel[0] * w.kernel[1], mapped.tile_h * mapped.tile_w
        # Each context has its own part of every buffer.
        self.most_inp = mapped.inp // (contexts * rows_in * columns_in)
        self.most_wgt = np.minimum(mapped.wgt // contexts, MOST_SIZE) // self.taps
        most_acc = mapped.acc // (contexts * (self.pixels * (1 + n_residual) + n_bias))
        # A store, and a load of several blocks of input channels, has two dimensions.
        whole = (mapped.tile_w == w.out_width) | (mapped.tile_h == w.out_height)
        self.most_co = np.where(whole, np.minimum(most_acc, MOST_STEPS // self.pixels), np.minimum(most_acc, 1))
        self.most_co[self.pixels > MOST_STEPS] = 0
        whole_in = (rows_in == 1) | (rows_in == w.height) | (columns_in == w.width)
        self.most_ci = np.where(whole_in & (not any(w.padding)), self.most_inp, np.minimum(self.most_inp, 1))

    def __call__(self, tile_ci: Ints, tile_co: Ints) -> NDArray[np.bool_]:
        fits = (tile_ci <= self.most_ci) & (tile_co <= self.most_co) & (tile_ci * tile_co <= self.most_wgt)
        return np.asarray(fits & (self.all_co // np.maximum(tile_co, 1) % self.m.oc_threads == 0))


def _largest(extents: Ints, fits: Callable[[int], NDArray[np.bool_]]) -> Ints:
    """Returns the largest divisor of each extent that fits, 0 where none does."""
    found = np.zeros(len(extents), dtype=np.int64)
    for size in sorted({size for extent in np.unique(extents).tolist() for size in divisors(extent)}):
        found[(extents % size == 0) & fits(size)] = size
    return found
