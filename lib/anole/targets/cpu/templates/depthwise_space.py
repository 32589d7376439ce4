"""The space of a depthwise convolution on the CPU: knobs, loop nest and analytical model; needs no compiler.

There is no reduction over channels: a vector holds adjacent channels of one pixel, and repeated reads of the same pixel
limit the speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from anole.space import Space, option_knob
from anole.space.loops import Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.convolution_tiles import ConvolutionTiles, panel_knob
from anole.targets.cpu.templates.register_tiles import unroll, waking
from anole.task import Conv2d

_MIN_LANES = 4
# Terms of `_DepthwiseTiles.merit`, in natural logarithms of the time, fitted to 1000 configs of 41 layers.

_BEST_ACCUMULATORS, _MAX_ACCUMULATORS, _FEW_CHANNELS, _PRODUCTS_PER_COPY = 4, 16, 64, 4

_ACCUMULATORS_COST, _SPILLED_COST, _PIXEL_COST, _UNEVEN_COST = 0.08, 0.23, 0.14, 0.4
"""Cost of a factor of two from the best number of accumulators, of spilling, of reading twice the pixels, and of
threads that wait as long as they work."""

_ROWS_COST = 0.1
"""Cost of a factor of two in a tile's rows if registers are few, fitted to 640 configs of 8 layers on AVX2."""

_LARGE_ACCUMULATORS, _LARGE_ACCUMULATORS_COST, _LARGE_VECTORS_COST, _LARGE_UNROLLED_COST = 7, 0.22, 0.04, 0.06
_LARGE_INLINE_COST, _LARGE_INLINE_ROW_COST = 0.28, 0.06
"""The same for kernels larger than 3x3: the best number of accumulators; cost of a factor of two from it, of twice the
vectors, of twice the unrolled products, and of padding conditions, also if a tile has entire rows. Fitted to 670
configs of 15 layers on AVX2."""

_CHANNELS_LAST_COST, _FEW_CHANNELS_COST, _INLINE_COST = 0.07, 0.06, 0.13
"""Cost of visiting channels inside of pixels, of half of `_FEW_CHANNELS` in a chunk, and of padding conditions for
twice the taps of a 3x3 kernel."""

_COPY_COST, _COPIED_FIRST_COST, _COPIED_IN_PARTS_COST = 0.36, 0.33, 0.36
"""Cost of copies that double the work, if one costs `_PRODUCTS_PER_COPY` products; additional costs if copies
are made before all chunks, or for some channels at a time."""


def is_depthwise(w: Conv2d) -> bool:
    """Whether each filter reads a single input channel."""
    return w.groups == w.in_channels > 1


def has_large_kernel(w: Conv2d) -> bool:
    """Whether the kernel is larger than 3x3: its register tiles read most pixels many times."""
    return max(w.kernel) > 3


def channel_lanes(unit: VectorUnit, w: Conv2d) -> int:
    """Return the channels per vector: a register's lanes, or at least half of them if that leaves no surplus."""
    divisor = gcd(w.out_channels, unit.lanes)
    return divisor if 2 * divisor >= max(unit.lanes, 2 * _MIN_LANES) else unit.lanes


def panel_lanes(unit: VectorUnit, w: Conv2d, panels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of lanes of a weight panel's row that are read together, for n widths, shape (n,)."""
    lanes = channel_lanes(unit, w)
    return np.where(panels % lanes == 0, lanes, unit.lanes_of_each(panels))


def computed_channels(unit: VectorUnit, w: Conv2d) -> int:
    """Return the number of output channels, rounded up to full vectors; the surplus is discarded."""
    lanes = channel_lanes(unit, w)
    return -(-w.out_channels // lanes) * lanes


@cache
def depthwise_space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Return the space of a depthwise convolution.

    Knobs besides those of `ConvolutionTiles`: ``auto_unroll_max_step`` is the maximum number of vector operations of
    the unrolled kernel. If ``pad_at`` is ``inline``, no padding is written: border tiles are compiled separately from
    interior ones. Channels that do not fill vectors are copied with padding.
    """
    tiles, lanes, channels = _DepthwiseTiles(unit, threads, w), channel_lanes(unit, w), computed_channels(unit, w)
    pad_at = ("parallel", "root") if channels > w.out_channels else ("inline", "parallel", "root")
    knobs = [
        panel_knob(unit, channels, lanes),
        *tiles.pixel_knobs(w.out_height, w.out_width),
        option_knob("auto_unroll_max_step", (64, 256, 1024)),
        *tiles.order_knobs(pad_at if any(w.padding) or channels > w.out_channels else ("none",)),
    ]
    chunks = min(threads, w.batch * w.out_height * (channels // lanes))
    return Space(knobs, tiles.constraints(lambda _: chunks), tiles.nest, merit=tiles.merit)


@dataclass(frozen=True)
class _DepthwiseTiles(ConvolutionTiles):
    def vectors(self, columns: Columns) -> NDArray[np.int64]:
        """Return the number of vector registers of a panel's row, shape (n,)."""
        panels = columns["tile_f"][:, 2]
        return np.asarray(panels // panel_lanes(self.unit, self.w, panels))

    def merit(self, columns: Columns) -> NDArray[np.float64]:
        """Return the merit of configs, shape (n,): the negative logarithm of their time, up to a constant."""
        chunks, few_registers = self.chunks(columns), not self.unit.multiplies_scalars
        is_large = few_registers and has_large_kernel(self.w)
        cost = self._large_kernel_cost(columns) if is_large else self._small_kernel_cost(columns)
        cost += _UNEVEN_COST * np.log2(-(-chunks // self.threads) * self.threads / chunks)
        cost += _ROWS_COST * np.log2(columns["tile_y"][:, 2]) if few_registers else 0.0
        cost += waking(self.w, self.threads, chunks) if self.threads == 1 else 0.0
        return np.asarray(-cost - self._split_cost(columns) - self._copy_cost(columns))

    def _small_kernel_cost(self, columns: Columns) -> NDArray[np.float64]:
        """Return the cost of register tiles and padding conditions, shape (n,)."""
        accumulators = self.accumulators(columns)
        cost = _ACCUMULATORS_COST * np.abs(np.log2(accumulators / _BEST_ACCUMULATORS))
        cost += _SPILLED_COST * (accumulators > _MAX_ACCUMULATORS)
        cost += _PIXEL_COST * np.log2(self._pixels_read(columns))
        cost += _CHANNELS_LAST_COST * (columns["tile_order"] == "yxf")
        cost += _INLINE_COST * (columns["pad_at"] == "inline") * np.log2(prod(self.w.kernel) / 9)
        return np.asarray(cost)

    def _large_kernel_cost(self, columns: Columns) -> NDArray[np.float64]:
        """Return the same for kernels larger than 3x3 if registers are few."""
        accumulators = self.accumulators(columns)
        cost = _LARGE_ACCUMULATORS_COST * np.abs(np.log2(accumulators / _LARGE_ACCUMULATORS))
        cost += _LARGE_VECTORS_COST * np.log2(self.vectors(columns))
        products = np.minimum(columns["auto_unroll_max_step"], accumulators * prod(self.w.kernel))
        cost += _LARGE_UNROLLED_COST * np.log2(products)
        inline_cost = np.where(columns["tile_x"][:, 0] == 1, _LARGE_INLINE_ROW_COST, _LARGE_INLINE_COST)
        return np.asarray(cost + inline_cost * (columns["pad_at"] == "inline"))

    def _pixels_read(self, columns: Columns) -> NDArray[np.float64]:
        """Return the number of pixels that a register tile reads per pixel that it writes, shape (n,)."""
        tile = (columns["tile_y"][:, 2], columns["tile_x"][:, 1])
        (rows, height), (row_columns, width) = ((size, self._n_read(size, axis)) for axis, size in enumerate(tile))
        return np.asarray(height * width / (rows * row_columns))

    def _n_read(self, written: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
        """Return the number of rows or columns that are read to write `written` rows or columns, shape (n,)."""
        w = self.w
        return np.asarray((written - 1) * w.strides[axis] + (w.kernel[axis] - 1) * w.dilation[axis] + 1)

    def _split_cost(self, columns: Columns) -> NDArray[np.float64]:
        """Return the cost of splitting channels among chunks, shape (n,)."""
        few = np.log2(np.maximum(1.0, _FEW_CHANNELS / columns["tile_f"][:, 1:].prod(axis=1)))
        is_copied = np.isin(columns["pad_at"], ("parallel", "root"))
        is_split = columns["tile_f"][:, 0] > 1
        return np.asarray(is_split * (_FEW_CHANNELS_COST * few + _COPIED_IN_PARTS_COST * is_copied))

    def _copy_cost(self, columns: Columns) -> NDArray[np.float64]:
        """Return the cost of copying the padded data, shape (n,)."""
        w, rows = self.w, self._n_read(columns["tile_y"][:, 1:].prod(axis=1), 0)
        in_chunks, before = (columns["pad_at"] == option for option in ("parallel", "root"))
        rows_copied = np.select([in_chunks, before], [columns["tile_y"][:, 0] * rows, w.padded_height], 0)
        products = w.out_height * w.out_width * w.kernel[0] * w.kernel[1]
        copied_share = rows_copied * w.padded_width / products
        return np.asarray(_COPY_COST * np.log2(1 + _PRODUCTS_PER_COPY * copied_share) + _COPIED_FIRST_COST * before)

    def nest(self, columns: Columns) -> LoopNest:
        """Return the loop nests of n configs."""
        w, lanes = self.w, panel_lanes(self.unit, self.w, columns["tile_f"][:, 2])
        taps = unroll(columns, self.accumulators(columns), {"rx": w.kernel[1], "ry": w.kernel[0]})
        reduction = [Loop("ry", "ry", w.kernel[0], 6, taps["ry"]), Loop("rx", "rx", w.kernel[1], 7, taps["rx"])]
        return self.tile(columns, lanes, reduction, (w.out_width, computed_channels(self.unit, w)))
