"""The knobs of a depthwise convolution on the CPU and the loop nest of a config; needs no compiler.

The nest, outermost first: a parallel loop over (batch, channels, rows); the tile loops inside a chunk; the kernel; the
register tile. There is no reduction over channels: a vector holds neighbouring channels of one pixel, and repeated
reads of the same pixel limit the speed.
"""

from __future__ import annotations

from functools import cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from anole.space import Space, option_knob, split_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.constraints import registers_suffice, threads_are_fed
from anole.targets.cpu.templates.conv2d_space import ROWS_IN_REGISTERS
from anole.targets.cpu.templates.serial_layers import evenness
from anole.targets.cpu.templates.tile_orders import TILE_ORDERS, tile_places
from anole.task import Conv2d

VERSION = 1

_FEWEST_LANES = 4
_ACCUMULATORS = 4
"""More vectors in flight reread pixels less often, but the compiler spills more of them to memory."""


def is_depthwise(w: Conv2d) -> bool:
    """Returns whether every input channel has its own kernel, or several."""
    return w.groups == w.in_channels > 1


def channel_lanes(unit: VectorUnit, w: Conv2d) -> int:
    """Returns how many channels a vector holds.

    If the channels do not divide well, the compiler splits the vector into registers; the width is the divisor of the
    channels that fills the registers best.
    """
    even = gcd(w.out_channels, unit.lanes)
    if even >= min(_FEWEST_LANES, unit.lanes):
        return even
    widths = [width for width in range(1, unit.widest_panel + 1) if w.out_channels % width == 0]
    return max(widths, key=lambda width: width / unit.padded(width))


@cache
def depthwise_space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Returns the space of a depthwise convolution.

    Knobs: ``tile_f`` splits the output channels and ``tile_y`` the rows into (parallel, tile, register), ``tile_x`` the
    columns into (tile, register); ``auto_unroll_max_step`` is the most vector operations of the unrolled kernel;
    ``tile_order``; and ``pad_at``, where the zero padding is written, or ``inline`` for nowhere: border tiles are then
    compiled separately from interior ones.
    """
    lanes, widest = channel_lanes(unit, w), unit.widest_panel

    def panels_are_whole_vectors(split: tuple[int, ...]) -> bool:
        return split[2] % lanes == 0 and split[2] <= widest

    knobs = [
        split_knob("tile_f", w.out_channels, 3, panels_are_whole_vectors, agent="spatial"),
        split_knob("tile_y", w.out_height, 3, lambda split: split[2] <= ROWS_IN_REGISTERS, agent="spatial"),
        split_knob("tile_x", w.out_width, 2, lambda split: split[1] <= unit.registers, agent="spatial"),
        option_knob("auto_unroll_max_step", (64, 256, 1024)),
        option_knob("tile_order", TILE_ORDERS),
        option_knob("pad_at", ("inline", "parallel", "root") if any(w.padding) else ("none",)),
    ]
    chunks = min(threads, w.batch * w.out_height * (w.out_channels // lanes))

    constraints = [
        registers_suffice(
            unit, lambda columns: _accumulators(unit, w, columns), lambda columns: _vectors(unit, w, columns)
        ),
        threads_are_fed(lambda columns: _chunks(w, columns), lambda _: chunks),
    ]
    return Space(
        knobs,
        constraints,
        lambda columns: _nest(unit, w, columns),
        merit=lambda columns: _merit(unit, threads, w, columns),
    )


def _merit(unit: VectorUnit, threads: int, w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    """Returns the merit of configs, shape (n,): few accumulators, and chunks that the threads share evenly."""
    chunks, taps = _chunks(w, columns), w.kernel[0] * w.kernel[1]
    accumulators = _accumulators(unit, w, columns)
    worth = -np.abs(np.log2(accumulators / _ACCUMULATORS)) - 0.5 * np.log2(_pixels_read(w, columns))
    worth += 2.0 * (accumulators * taps <= columns["auto_unroll_max_step"]) - 0.5 * _vectors(unit, w, columns)
    worth += 1.0 * (columns["pad_at"] == "inline") + 0.5 * (columns["tile_order"] == "yfx")
    worth += evenness(chunks, threads)
    return np.asarray(worth)


def _vectors(unit: VectorUnit, w: Conv2d, columns: Columns) -> NDArray[np.int64]:
    """Returns how many vector registers hold one panel, shape (n,)."""
    lanes = channel_lanes(unit, w)
    return np.asarray(columns["tile_f"][:, 2] // lanes * (unit.padded(lanes) // unit.lanes))


def _accumulators(unit: VectorUnit, w: Conv2d, columns: Columns) -> NDArray[np.int64]:
    """Returns how many vector registers hold accumulators, shape (n,)."""
    return np.asarray(columns["tile_y"][:, 2] * columns["tile_x"][:, 1] * _vectors(unit, w, columns))


def _chunks(w: Conv2d, columns: Columns) -> NDArray[np.int64]:
    return np.asarray(w.batch * columns["tile_f"][:, 0] * columns["tile_y"][:, 0])


def _pixels_read(w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    """Returns how many pixels a register tile reads for each that it writes, shape (n,)."""
    rows, row_columns = columns["tile_y"][:, 2], columns["tile_x"][:, 1]
    reach = [(taps - 1) * dilation + 1 for taps, dilation in zip(w.kernel, w.dilation, strict=True)]
    read = ((rows - 1) * w.strides[0] + reach[0]) * ((row_columns - 1) * w.strides[1] + reach[1])
    return np.asarray(read / (rows * row_columns))


def _nest(unit: VectorUnit, w: Conv2d, columns: Columns) -> LoopNest:
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    order = tile_places(columns["tile_order"])
    lanes = channel_lanes(unit, w)
    parallel, register = Annotation.PARALLEL, Annotation.UNROLLED
    steps, unrolled = _accumulators(unit, w, columns), {}
    for name, extent in (("rx", w.kernel[1]), ("ry", w.kernel[0])):
        steps = steps * extent
        unrolled[name] = np.where(steps <= columns["auto_unroll_max_step"], register, Annotation.SERIAL)
    loops = (
        Loop("n", "n", w.batch, 0, parallel),
        Loop("f_parallel", "f", f[:, 0], 1, parallel),
        Loop("y_parallel", "y", y[:, 0], 2, parallel),
        Loop("f_tile", "f", f[:, 1], 3 + order[:, 0]),
        Loop("y_tile", "y", y[:, 1], 3 + order[:, 1]),
        Loop("x_tile", "x", x[:, 0], 3 + order[:, 2]),
        Loop("ry", "ry", w.kernel[0], 6, unrolled["ry"]),
        Loop("rx", "rx", w.kernel[1], 7, unrolled["rx"]),
        Loop("y_register", "y", y[:, 2], 8, register),
        Loop("x_register", "x", x[:, 1], 9, register),
        Loop("f_register", "f", f[:, 2] // lanes, 10, register),
        Loop("f_vector", "f", lanes, 11, Annotation.VECTORIZED),
    )
    rows, row_columns = {"y": w.strides[0], "ry": w.dilation[0]}, {"x": w.strides[1], "rx": w.dilation[1]}
    height, width = w.height + w.padding[0] + w.padding[2], w.width + w.padding[1] + w.padding[3]
    data = Buffer("data", (w.batch, height, width, w.out_channels), ({"n": 1}, rows, row_columns, {"f": 1}))
    weight = Buffer("weight", (w.out_channels, *w.kernel), ({"f": 1}, {"ry": 1}, {"rx": 1}))
    shape = (w.batch, w.out_height, w.out_width, w.out_channels)
    return LoopNest(loops, (data, weight, Buffer("out", shape, ({"n": 1}, {"y": 1}, {"x": 1}, {"f": 1}))))
