"""The knobs of a depthwise convolution on the CPU and the loop nest of a config; needs no compiler.

There is no reduction over channels: a vector holds neighbouring channels of one pixel, and repeated reads of the same
pixel limit the speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from anole.space import Space, option_knob
from anole.space.loops import Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.convolution_tiles import ConvolutionTiles, panel_knob
from anole.targets.cpu.templates.register_tiles import evenness, unrolled
from anole.task import Conv2d

_FEWEST_LANES = 4
_BEST_ACCUMULATORS = 4
"""More vectors in flight reread pixels less often, but the compiler spills more of them to memory."""


def is_depthwise(w: Conv2d) -> bool:
    """Returns whether every input channel has its own kernel, or several."""
    return w.groups == w.in_channels > 1


def channel_lanes(unit: VectorUnit, w: Conv2d) -> int:
    """Returns how many channels a vector holds: a register's lanes, or at least half of them if that has no surplus."""
    even = gcd(w.out_channels, unit.lanes)
    return even if 2 * even >= max(unit.lanes, 2 * _FEWEST_LANES) else unit.lanes


def computed_channels(unit: VectorUnit, w: Conv2d) -> int:
    """Returns the number of output channels in whole vectors; the surplus is discarded."""
    lanes = channel_lanes(unit, w)
    return -(-w.out_channels // lanes) * lanes


@cache
def depthwise_space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Returns the space of a depthwise convolution.

    Knobs beside those of `ConvolutionTiles`: ``auto_unroll_max_step`` is the most vector operations of the unrolled
    kernel. If ``pad_at`` is ``inline``, no padding is written: border tiles are compiled separately from interior ones.
    Channels that do not fill whole vectors are copied with padding.
    """
    tiles, lanes, channels = _DepthwiseTiles(unit, threads, w), channel_lanes(unit, w), computed_channels(unit, w)
    copied = ("parallel", "root") if channels > w.out_channels else ("inline", "parallel", "root")
    knobs = [
        panel_knob(unit, channels, lanes),
        *tiles.pixel_knobs(w.out_height, w.out_width),
        option_knob("auto_unroll_max_step", (64, 256, 1024)),
        *tiles.order_knobs(copied if any(w.padding) or channels > w.out_channels else ("none",)),
    ]
    chunks = min(threads, w.batch * w.out_height * (channels // lanes))
    return Space(knobs, tiles.constraints(lambda _: chunks), tiles.nest, merit=tiles.merit)


@dataclass(frozen=True)
class _DepthwiseTiles(ConvolutionTiles):
    def vectors(self, columns: Columns) -> NDArray[np.int64]:
        """Returns how many vector registers hold one panel, shape (n,)."""
        lanes = channel_lanes(self.unit, self.w)
        return np.asarray(columns["tile_f"][:, 2] // lanes * (self.unit.padded(lanes) // self.unit.lanes))

    def merit(self, columns: Columns) -> NDArray[np.float64]:
        """Returns the merit of configs, shape (n,): few accumulators, and chunks that the threads share evenly."""
        taps, accumulators = self.w.kernel[0] * self.w.kernel[1], self.accumulators(columns)
        worth = -np.abs(np.log2(accumulators / _BEST_ACCUMULATORS)) - 0.5 * np.log2(self._pixels_read(columns))
        worth += 2.0 * (accumulators * taps <= columns["auto_unroll_max_step"]) - 0.5 * self.vectors(columns)
        worth += 1.0 * (columns["pad_at"] == "inline") + 0.5 * (columns["tile_order"] == "yfx")
        worth += evenness(self.chunks(columns), self.threads)
        return np.asarray(worth)

    def _pixels_read(self, columns: Columns) -> NDArray[np.float64]:
        """Returns how many pixels a register tile reads for each that it writes, shape (n,)."""
        w, rows, row_columns = self.w, columns["tile_y"][:, 2], columns["tile_x"][:, 1]
        reach = [(taps - 1) * dilation + 1 for taps, dilation in zip(w.kernel, w.dilation, strict=True)]
        read = ((rows - 1) * w.strides[0] + reach[0]) * ((row_columns - 1) * w.strides[1] + reach[1])
        return np.asarray(read / (rows * row_columns))

    def nest(self, columns: Columns) -> LoopNest:
        w, lanes = self.w, channel_lanes(self.unit, self.w)
        taps = unrolled(columns, self.accumulators(columns), {"rx": w.kernel[1], "ry": w.kernel[0]})
        reduction = [Loop("ry", "ry", w.kernel[0], 6, taps["ry"]), Loop("rx", "rx", w.kernel[1], 7, taps["rx"])]
        return self.tiled(columns, lanes, reduction, (w.out_width, computed_channels(self.unit, w)))
