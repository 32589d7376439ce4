"""The knobs of a direct convolution on the CPU, and what a config of them means; needs no compiler.

The nest, outermost first: a parallel loop over (batch, channels, rows); the tile loops inside a chunk; the
reduction; the register tile, whose accumulators never leave the vector registers.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from anole.space import Knob, Space, option_knob, split_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.constraints import latency_is_hidden, registers_suffice, threads_are_fed
from anole.targets.cpu.vector_unit import VectorUnit
from anole.task import Conv2d

VERSION = 1
PREFETCH_VERSION = 1

CACHE_BYTES = 1 << 20
"""What a core has of the second-level cache, about."""

CACHE_LINE_BYTES = 64

TILE_ORDERS = {"fyx": (0, 1, 2), "yfx": (1, 0, 2), "yxf": (1, 2, 0)}
"""The order of the tile loops inside a parallel chunk: positions in (f, y, x)."""

ROWS_IN_REGISTERS = 8
FMA_LATENCY_HIDDEN = 8
"""Independent multiply-adds in flight that keep two pipes of latency four busy."""


_FLOAT_BYTES = 4


def prefetches(w: Conv2d) -> bool:
    """Returns whether weights can be asked for ahead: where they do not stay in the cache, and come from memory."""
    weights = w.kernel[0] * w.kernel[1] * w.in_channels // w.groups * w.out_channels
    return _FLOAT_BYTES * weights >= CACHE_BYTES


def padded_filters(unit: VectorUnit, w: Conv2d) -> int:
    """Returns the output channels that are computed: whole registers of them, unless groups forbid it."""
    return unit.padded(w.out_channels) if w.groups == 1 else w.out_channels


def vector_width(unit: VectorUnit, panel: int) -> int:
    """Returns the lanes of the vectors that a weight panel of some width is read by."""
    return next(lanes for lanes in range(min(unit.lanes, panel), 0, -1) if panel % lanes == 0)


def filter_knob(unit: VectorUnit, w: Conv2d) -> Knob:
    """Returns the knob ``tile_f``, which splits the filters into (parallel, tile, register)."""
    filters = padded_filters(unit, w)
    # A register must not mix channels of two groups, which read different inputs.
    alike = filters if w.groups == 1 else w.out_channels // w.groups
    widest = unit.widest_panel

    def panels_are_whole_registers(split: tuple[int, ...]) -> bool:
        return split[2] <= widest and alike % split[2] == 0 and (w.groups > 1 or split[2] % unit.lanes == 0)

    return split_knob("tile_f", filters, 3, panels_are_whole_registers, agent="spatial")


def attainable(unit: VectorUnit, threads: int, w: Conv2d, knobs: list[Knob]) -> tuple[int, int]:
    """Returns the parallel chunks, and with them the accumulators, that a config can have: at most what is needed."""
    f, y = ({(split[0], split[-1]) for split in knob.values} for knob in knobs[:2])
    x = {split[-1] for split in knobs[2].values}
    tiles = [
        (w.batch * f_parallel * y_parallel, rows * columns * vectors)
        for f_parallel, panel in f
        for y_parallel, rows in y
        for columns in x
        for vectors in (-(-panel // unit.lanes),)
        if rows * columns * vectors + vectors + 1 <= unit.registers
    ]
    chunks = min(threads, max(chunks for chunks, _ in tiles))
    return chunks, min(FMA_LATENCY_HIDDEN, max(most for available, most in tiles if available >= chunks))


@cache
def conv2d_space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Returns the space of a convolution.

    Knobs, with the papers' names (Chameleon, Table 1): ``tile_f`` into (parallel, tile, register), ``tile_y`` into
    (parallel, tile, register), ``tile_x`` into (tile, register); ``tile_rc``, ``tile_ry``, ``tile_rx`` into (outer,
    inner), where all outer parts are outside of all inner ones; ``auto_unroll_max_step``, how many vector operations
    an unrolled reduction body may have, and ``unroll_explicit``, whether TVM unrolls it or LLVM may. And the CPU's
    own: ``parallel_order``, ``tile_order``, and ``pad_at``, where the zero border is written. Where weights do not fit
    the cache, also ``prefetch``: whether a panel of weights is asked for while the one before it is used.
    """
    knobs = [
        filter_knob(unit, w),
        split_knob("tile_y", w.out_height, 3, lambda split: split[2] <= ROWS_IN_REGISTERS, agent="spatial"),
        split_knob("tile_x", w.out_width, 2, lambda split: split[1] <= unit.registers, agent="spatial"),
        split_knob("tile_rc", w.in_channels // w.groups, 2, agent="reduction"),
        split_knob("tile_ry", w.kernel[0], 2, agent="reduction"),
        split_knob("tile_rx", w.kernel[1], 2, agent="reduction"),
        option_knob("auto_unroll_max_step", (0, 64, 512)),
        option_knob("unroll_explicit", (0, 1)),
        option_knob("parallel_order", ("fy", "yf")),
        option_knob("tile_order", tuple(TILE_ORDERS)),
        option_knob("pad_at", ("inline", "parallel", "root") if any(w.padding) else ("none",)),
    ]
    if prefetches(w):
        knobs.append(option_knob("prefetch", (0, 1)))
    chunks, enough = attainable(unit, threads, w, knobs)

    constraints = [
        registers_suffice(unit, lambda columns: _accumulators(unit, columns), lambda columns: _vectors(unit, columns)),
        latency_is_hidden(lambda columns: _accumulators(unit, columns), lambda _: enough),
        threads_are_fed(lambda columns: w.batch * columns["tile_f"][:, 0] * columns["tile_y"][:, 0], lambda _: chunks),
    ]
    return Space(
        knobs,
        constraints,
        lambda columns: _nest(unit, w, columns),
        merit=lambda columns: _merit(unit, w, columns),
    )


def _merit(unit: VectorUnit, w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    """How well a config fills the registers, and how simple its loops are, shape (n,)."""
    worth = _accumulators(unit, columns) + np.log2(columns["tile_rc"][:, 1]) - 2.0 * columns["unroll_explicit"]
    worth += 4.0 * (columns["pad_at"] == "root") + 1.0 * (columns["tile_rx"][:, 1] == 1)
    if prefetches(w):
        worth += 1.0 * columns["prefetch"]
    return np.asarray(worth)


def _vectors(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """How many vector registers hold one weight panel, shape (n,)."""
    return np.asarray(-(-columns["tile_f"][:, 2] // unit.lanes))


def _accumulators(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """How many vector registers hold accumulators, shape (n,)."""
    return np.asarray(columns["tile_y"][:, 2] * columns["tile_x"][:, 1] * _vectors(unit, columns))


def _nest(unit: VectorUnit, w: Conv2d, columns: Columns) -> LoopNest:
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    rc, ry, rx = columns["tile_rc"], columns["tile_ry"], columns["tile_rx"]
    f_first = columns["parallel_order"] == "fy"
    orders = np.array([np.argsort(order) for order in TILE_ORDERS.values()])
    order = orders[np.searchsorted(list(TILE_ORDERS), columns["tile_order"])]
    steps = _accumulators(unit, columns) * np.where(columns["unroll_explicit"] == 1, 1, 1 << 20)
    unrolled = {}
    for name, extent in (("rx", rx[:, 1]), ("ry", ry[:, 1]), ("rc", rc[:, 1])):
        steps = steps * extent
        fits = steps <= columns["auto_unroll_max_step"]
        unrolled[name] = np.where(fits, Annotation.UNROLLED, Annotation.SERIAL)
    lanes = np.gcd(f[:, 2], unit.lanes)
    parallel, register = Annotation.PARALLEL, Annotation.UNROLLED
    loops = (
        Loop("n", "n", w.batch, 0, parallel),
        Loop("f_parallel", "f", f[:, 0], np.where(f_first, 1, 2), parallel),
        Loop("y_parallel", "y", y[:, 0], np.where(f_first, 2, 1), parallel),
        Loop("f_tile", "f", f[:, 1], 3 + order[:, 0]),
        Loop("y_tile", "y", y[:, 1], 3 + order[:, 1]),
        Loop("x_tile", "x", x[:, 0], 3 + order[:, 2]),
        *(
            Loop(f"{name}_outer", name, tile[:, 0], 6 + at)
            for at, (name, tile) in enumerate((("rc", rc), ("ry", ry), ("rx", rx)))
        ),
        *(
            Loop(f"{name}_inner", name, tile[:, 1], 9 + at, unrolled[name])
            for at, (name, tile) in enumerate((("rc", rc), ("ry", ry), ("rx", rx)))
        ),
        Loop("y_register", "y", y[:, 2], 12, register),
        Loop("x_register", "x", x[:, 1], 13, register),
        Loop("f_register", "f", f[:, 2] // lanes, 14, register),
        Loop("f_vector", "f", lanes, 15, Annotation.VECTORIZED),
    )
    rows = {"y": w.strides[0], "ry": w.dilation[0]}
    row_columns = {"x": w.strides[1], "rx": w.dilation[1]}
    height, width = w.height + w.padding[0] + w.padding[2], w.width + w.padding[1] + w.padding[3]
    filters = padded_filters(unit, w)
    data = Buffer("data", (w.batch, height, width, w.in_channels), ({"n": 1}, rows, row_columns, {"rc": 1}))
    weight = Buffer(
        "weight", (filters, *w.kernel, w.in_channels // w.groups), ({"f": 1}, {"ry": 1}, {"rx": 1}, {"rc": 1})
    )
    out = Buffer("out", (w.batch, w.out_height, w.out_width, filters), ({"n": 1}, {"y": 1}, {"x": 1}, {"f": 1}))
    return LoopNest(loops, (data, weight, out))
