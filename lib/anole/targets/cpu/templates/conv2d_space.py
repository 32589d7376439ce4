"""The knobs of a direct convolution on the CPU and the loop nest of a config; needs no compiler.

The nest, outermost first: a parallel loop over (batch, channels, rows); the tile loops inside a chunk; the reduction;
the register tile, whose accumulators never leave the vector registers.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from anole.space import Knob, Space, option_knob, split_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.cpu.templates.constraints import latency_is_hidden, registers_suffice, threads_are_fed
from anole.targets.cpu.templates.idle_steps import live_share, skips
from anole.targets.cpu.templates.rounding import covering
from anole.targets.cpu.templates.tile_orders import TILE_ORDERS, tile_places
from anole.task import Conv2d

VERSION = 1
PREFETCH_VERSION = 2
GAP_VERSION = 1

CACHE_BYTES = 1 << 20
"""Approximate share of the second-level cache for one core."""

CACHE_LINE_BYTES = 64

ROWS_IN_REGISTERS = 8
FMA_LATENCY_HIDDEN = 8
"""Independent multiply-adds in flight that keep two pipes of latency four busy."""

_FIRST_CACHE_BYTES, _WAY_BYTES, _WAYS = 48 << 10, 4 << 10, 12
"""Approximate size of a core's first-level cache, size of a way, and number of ways; lines a way apart share a set."""

_FEW_ACCUMULATORS, _MANY_ACCUMULATORS = 12, 20
_FEW, _MANY, _CONFLICTING, _CONDITIONAL, _EVALUATED = 0.095, 0.04, 0.22, 0.037, 0.2
"""Terms of `_cycles`: additional cost of a multiply-add with few accumulators; with many accumulators and addresses
that change with the kernel's rows and columns; with pixels whose lines conflict in the cache; with padding conditions;
with many accumulators and padding conditions that an outer loop over the kernel's columns evaluates again and again.
"""

_HIDING = 5
_NEAR, _SHARED, _FAR, _UNASKED, _PADDED = 0.55, 0.76, 2.0, 3.8, 3.4
"""Terms of `_cycles`: cost of a cache line from a core's own cache (while fewer pixels than `_HIDING` use it), from a
shared cache, and from memory; additional cost if it is not prefetched; cost of copying a line for padding."""

_WAKING = 3000.0
"""Term of `_cycles`: cost of starting other threads."""


def conv2d_prefetches(w: Conv2d) -> bool:
    """Returns whether prefetching weights is an option: where they exceed the cache and come from memory."""
    weights = w.kernel[0] * w.kernel[1] * w.in_channels // w.groups * w.out_channels
    return FLOAT_BYTES * weights >= CACHE_BYTES


def leaves_gaps(w: Conv2d) -> bool:
    """Returns whether a padded copy of the data has gaps of a cache line between pixels.

    It does if a row's pixels would otherwise be whole ways of the first-level cache apart and evict each other.
    """
    return any(w.padding) and w.strides[1] * w.in_channels % (_WAY_BYTES // FLOAT_BYTES) == 0


def padded_filters(unit: VectorUnit, w: Conv2d) -> int:
    """Returns the computed number of output channels: whole registers of them, unless groups forbid it."""
    return unit.padded(w.out_channels) if w.groups == 1 else w.out_channels


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
    """Returns the most parallel chunks and, with these, accumulators that a config can have, up to those needed."""
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

    Knobs, with the papers' names (Chameleon, Table 1): ``tile_f`` and ``tile_y`` split into (parallel, tile, register),
    ``tile_x`` into (tile, register); ``tile_rc``, ``tile_ry``, ``tile_rx`` split into (outer, inner), and all outer
    parts are outside of all inner ones; ``auto_unroll_max_step`` is the most vector operations of an unrolled reduction
    body, and ``unroll_explicit`` says whether TVM unrolls it or LLVM may. The CPU has further knobs:
    ``parallel_order``, ``tile_order``, and ``pad_at``, where the zero padding is written. If the weights exceed the
    cache, also ``prefetch``: whether a panel of weights is prefetched while the previous one is used.
    """
    knobs = [
        filter_knob(unit, w),
        split_knob("tile_y", w.out_height, 3, lambda split: split[2] <= ROWS_IN_REGISTERS, agent="spatial"),
        split_knob("tile_x", covering(w.out_width), 2, lambda split: split[1] <= unit.registers, agent="spatial"),
        split_knob("tile_rc", w.in_channels // w.groups, 2, agent="reduction"),
        split_knob("tile_ry", w.kernel[0], 2, agent="reduction"),
        split_knob("tile_rx", w.kernel[1], 2, agent="reduction"),
        option_knob("auto_unroll_max_step", (0, 64, 512)),
        option_knob("unroll_explicit", (0, 1)),
        option_knob("parallel_order", ("fy", "yf")),
        option_knob("tile_order", TILE_ORDERS),
        option_knob("pad_at", ("inline", "parallel", "root") if any(w.padding) else ("none",)),
    ]
    if conv2d_prefetches(w):
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
        lambda columns: conv2d_nest(unit, w, columns),
        merit=lambda columns: -_cycles(unit, threads, w, columns),
    )


def _cycles(unit: VectorUnit, threads: int, w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    """Estimates the time of configs, shape (n,), in units of the time in which a core starts two vector multiply-adds.

    Multiply-adds wait for the loads of their operands, and take a little longer if a tile strains the registers or the
    sets of the first-level cache. Weights and data that the caches do not keep add their own time. The constants are
    fitted to 2300 random configs of 24 convolutions.
    """
    vectors, pixels = _vectors(unit, columns), columns["tile_y"][:, 2] * columns["tile_x"][:, 1]
    accumulators = vectors * pixels
    weights = w.kernel[0] * w.kernel[1] * w.in_channels // w.groups * padded_filters(unit, w)
    products = (
        weights * w.batch * w.out_height * covering(w.out_width) / np.gcd(columns["tile_f"][:, 2], unit.lanes) / 2
    )
    evaluated = (accumulators > _MANY_ACCUMULATORS) & (columns["tile_rx"][:, 1] < w.kernel[1])
    slower = (
        _FEW * (accumulators < _FEW_ACCUMULATORS)
        + _MANY * ((accumulators > _MANY_ACCUMULATORS) & (max(w.kernel) > 1))
        + _CONFLICTING * (_lines_in_set(w, columns) > _WAYS)
        + (_CONDITIONAL + _EVALUATED * evaluated) * (columns["pad_at"] == "inline")
    )
    computed = products * (np.maximum(1.0, 1 / vectors + 1 / pixels) + slower)
    if skips(w):
        computed = computed * live_share(w, columns)
    nest, line = conv2d_nest(unit, w, columns), CACHE_LINE_BYTES // FLOAT_BYTES
    # A quarter of each cache is left for data outside of this loop nest.
    near, far = (nest.loads(3 * cache_bytes // 4 // FLOAT_BYTES) for cache_bytes in (_FIRST_CACHE_BYTES, CACHE_BYTES))
    streamed = _NEAR * near["weight"] * (pixels < _HIDING) + _SHARED * (far["weight"] + far["data"])
    streamed += weights * (_FAR + _UNASKED * (1 - columns["prefetch"] if conv2d_prefetches(w) else 1))
    chunks = w.batch * columns["tile_f"][:, 0] * columns["tile_y"][:, 0]
    work = computed + (streamed + _PADDED * _padded(w, columns)) / line
    return np.asarray(work * (-(-chunks // threads) / chunks) + _WAKING * (chunks > 1))


def _lines_in_set(w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    """Returns how many lines of a register tile's pixels share a set of the first-level cache, shape (n,)."""
    rows, row_columns = columns["tile_y"][:, 2], columns["tile_x"][:, 1]
    line, period = CACHE_LINE_BYTES // FLOAT_BYTES, _WAY_BYTES // FLOAT_BYTES
    gap = np.where(columns["pad_at"] == "inline", 0, line) if leaves_gaps(w) else 0
    pixel = w.in_channels + gap
    step, row = w.strides[1] * pixel, w.strides[0] * pixel * (w.width + w.padding[1] + w.padding[3])
    common = np.gcd(np.where(row_columns > 1, np.gcd(step, period), period), np.where(rows > 1, row, period))
    return np.asarray(rows * row_columns / np.minimum(period // common, _WAY_BYTES // CACHE_LINE_BYTES))


def _padded(w: Conv2d, columns: Columns) -> NDArray[np.int64]:
    """Returns how many elements the padding writes, shape (n,): all data, or in every chunk the rows that it reads."""
    rows = (columns["tile_y"][:, 1:].prod(axis=1) - 1) * w.strides[0] + (w.kernel[0] - 1) * w.dilation[0] + 1
    in_chunks = w.batch * columns["tile_f"][:, 0] * columns["tile_y"][:, 0] * rows
    at_once = w.batch * (w.height + w.padding[0] + w.padding[2])
    written = np.select([columns["pad_at"] == "parallel", columns["pad_at"] == "root"], [in_chunks, at_once], 0)
    return np.asarray(written * (w.width + w.padding[1] + w.padding[3]) * w.in_channels)


def _vectors(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """Returns how many vector registers hold one weight panel, shape (n,)."""
    return np.asarray(-(-columns["tile_f"][:, 2] // unit.lanes))


def _accumulators(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """Returns how many vector registers hold accumulators, shape (n,)."""
    return np.asarray(columns["tile_y"][:, 2] * columns["tile_x"][:, 1] * _vectors(unit, columns))


def conv2d_nest(
    unit: VectorUnit, w: Conv2d, columns: Columns, panel_lanes: NDArray[np.int64] | None = None
) -> LoopNest:
    """Returns the loop nests of n configs.

    Args:
        unit: the vector unit.
        w: the convolution.
        columns: the configs.
        panel_lanes: lanes with which each config reads its weight panels, shape (n,); whole vectors by default.
    """
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    rc, ry, rx = columns["tile_rc"], columns["tile_ry"], columns["tile_rx"]
    f_first = columns["parallel_order"] == "fy"
    order = tile_places(columns["tile_order"])
    lanes = np.gcd(f[:, 2], unit.lanes) if panel_lanes is None else panel_lanes
    vectors = _vectors(unit, columns) if panel_lanes is None else f[:, 2] // lanes
    steps = y[:, 2] * x[:, 1] * vectors * np.where(columns["unroll_explicit"] == 1, 1, 1 << 20)
    unrolled = {}
    for name, extent in (("rx", rx[:, 1]), ("ry", ry[:, 1]), ("rc", rc[:, 1])):
        steps = steps * extent
        fits = steps <= columns["auto_unroll_max_step"]
        unrolled[name] = np.where(fits, Annotation.UNROLLED, Annotation.SERIAL)
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
    out_width, filters = covering(w.out_width), padded_filters(unit, w)
    width += (out_width - w.out_width) * w.strides[1]
    data = Buffer("data", (w.batch, height, width, w.in_channels), ({"n": 1}, rows, row_columns, {"rc": 1}))
    weight = Buffer(
        "weight", (filters, *w.kernel, w.in_channels // w.groups), ({"f": 1}, {"ry": 1}, {"rx": 1}, {"rc": 1})
    )
    out = Buffer("out", (w.batch, w.out_height, out_width, filters), ({"n": 1}, {"y": 1}, {"x": 1}, {"f": 1}))
    return LoopNest(loops, (data, weight, out))
