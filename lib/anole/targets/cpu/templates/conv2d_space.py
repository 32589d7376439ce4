"""The space of a direct convolution on the CPU: knobs, loop nest and analytical model; needs no compiler.

The reduction is over channels, kernel rows and kernel columns, in that order; all outer loops are outside of all inner
loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from anole.space import Knob, Space, option_knob, split_knob
from anole.space.loops import Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.cpu.templates.convolution_tiles import ConvolutionTiles, panel_knob
from anole.targets.cpu.templates.depthwise_space import has_large_kernel, is_depthwise
from anole.targets.cpu.templates.register_tiles import CACHE_BYTES, CACHE_LINE_BYTES, covering, unroll
from anole.targets.cpu.templates.skip_padding import active_share, skips
from anole.task import Conv2d

_LINE = CACHE_LINE_BYTES // FLOAT_BYTES

_FIRST_CACHE_BYTES, _WAY_BYTES, _WAYS = 48 << 10, 4 << 10, 12
"""Approximate size of a core's first-level cache, of a way, and number of ways; lines one way apart share a set."""

# Terms of `DirectTiles.cycles`, fitted to 2300 random configs of 24 convolutions.

_FEW_ACCUMULATORS, _FEW_ACCUMULATORS_COST = 12, 0.095
_MANY_ACCUMULATORS, _MANY_ACCUMULATORS_COST = 20, 0.04
_CONFLICT_COST, _CONDITION_COST, _CONDITION_AND_BROADCAST_COST, _REPEATED_CONDITION_COST = 0.22, 0.037, 0.25, 0.2
"""Additional cost of a multiply-add, in multiply-adds: with few accumulators; with many, and addresses that change with
the kernel's rows and columns; with pixels whose lines conflict in the cache; with padding conditions; with padding
conditions and broadcasts; with many accumulators and padding conditions that an outer loop over the kernel's columns
evaluates repeatedly."""

_FILTERS_INSIDE_COST, _TAPS_COST = 0.06, 0.04
"""The same with broadcasts: with filters as the innermost tiles; with both or none of the kernel's rows and columns in
inner loops. Fitted to 390 configs of 14 convolutions on AVX2."""

_PIXELS_THAT_HIDE_LOADS = 5
_NEAR_LINE_COST, _SHARED_LINE_COST, _MEMORY_LINE_COST = 0.55, 0.76, 2.0
_NOT_PREFETCHED_COST, _PADDED_LINE_COST = 3.8, 3.4
"""Cost of a cache line from a core's own cache, unless enough pixels use it; from a shared cache; from memory; the
additional cost if it is not prefetched; and the cost of copying it for padding."""

_THREADS_START_COST = 3000.0


def conv2d_prefetches(w: Conv2d) -> bool:
    """Whether prefetching weights is an option: only if they exceed the cache and come from memory."""
    weights = w.kernel[0] * w.kernel[1] * w.in_channels // w.groups * w.out_channels
    return FLOAT_BYTES * weights >= CACHE_BYTES


def leaves_gaps(w: Conv2d) -> bool:
    """Whether a padded copy of the data has gaps of a cache line between pixels.

    Without gaps, a row's pixels would be multiples of a way of the first-level cache apart and evict each other. Large
    depthwise kernels read so many pixels of each channel that an eighth of a way suffices.
    """
    period = _WAY_BYTES // FLOAT_BYTES // (8 if is_depthwise(w) and has_large_kernel(w) else 1)
    return any(w.padding) and w.strides[1] * w.in_channels % period == 0


def covered_size(w: Conv2d) -> tuple[int, int]:
    """Return the numbers of rows and columns to compute, rounded up to allow good register tiles.

    Register tiles extend along the columns, or along the rows of a single column; the other number is unchanged.
    """
    return (covering(w.out_height), 1) if w.out_width == 1 else (w.out_height, covering(w.out_width))


def padded_filters(unit: VectorUnit, w: Conv2d) -> int:
    """Return the number of output channels to compute: a multiple of the lanes, unless groups forbid it."""
    return unit.round_up(w.out_channels) if w.groups == 1 else w.out_channels


def filter_knob(unit: VectorUnit, w: Conv2d) -> Knob:
    """Return the knob ``tile_f``; a register must not mix channels of two groups, which read different inputs."""
    if w.groups == 1:
        return panel_knob(unit, padded_filters(unit, w), unit.lanes)
    return panel_knob(unit, w.out_channels, 1, within=w.out_channels // w.groups)


@cache
def conv2d_space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Return the space of a direct convolution.

    Knobs besides those of `ConvolutionTiles`, with the papers' names (Chameleon, Table 1): ``tile_rc``, ``tile_ry``,
    ``tile_rx`` split into (outer, inner); ``auto_unroll_max_step`` is the maximum number of vector operations of an
    unrolled reduction body, and ``unroll_explicit`` whether TVM unrolls it or LLVM may. The CPU has further knobs:
    ``parallel_order`` and, if the weights exceed the cache, ``prefetch``: whether a panel of weights is prefetched
    while the previous one is used.
    """
    tiles = DirectTiles(unit, threads, w)
    knobs = [
        filter_knob(unit, w),
        *tiles.pixel_knobs(*covered_size(w)),
        split_knob("tile_rc", w.in_channels // w.groups, 2, agent="reduction"),
        split_knob("tile_ry", w.kernel[0], 2, agent="reduction"),
        split_knob("tile_rx", w.kernel[1], 2, agent="reduction"),
        option_knob("auto_unroll_max_step", (0, 64, 512)),
        option_knob("unroll_explicit", (0, 1)),
        option_knob("parallel_order", ("fy", "yf")),
        *tiles.order_knobs(("inline", "parallel", "root") if any(w.padding) else ("none",)),
    ]
    if conv2d_prefetches(w):
        knobs.append(option_knob("prefetch", (0, 1)))
    constraints = tiles.attainable_constraints(knobs)
    return Space(knobs, constraints, tiles.nest, merit=lambda columns: -tiles.cycles(columns))


@dataclass(frozen=True)
class DirectTiles(ConvolutionTiles):
    """Register tiles of a direct convolution."""

    def cycles(self, columns: Columns) -> NDArray[np.float64]:
        """Estimate the time of configs, shape (n,), in cycles in which a core starts two vector multiply-adds.

        Multiply-adds wait for the loads of their operands, and take slightly longer if a tile strains the registers or
        the sets of the first-level cache. Weights and data that do not stay in the caches add to the time.
        """
        w, chunks = self.w, self.chunks(columns)
        weights = w.kernel[0] * w.kernel[1] * w.in_channels // w.groups * padded_filters(self.unit, w)
        streamed = self._load_cost(columns)
        streamed += weights * (_MEMORY_LINE_COST + _NOT_PREFETCHED_COST * (1 - columns.get("prefetch", 0)))
        work = self._compute_cost(columns, weights) + (streamed + _PADDED_LINE_COST * self._n_padded(columns)) / _LINE
        return np.asarray(work * (-(-chunks // self.threads) / chunks) + _THREADS_START_COST * (chunks > 1))

    def _compute_cost(self, columns: Columns, weights: int) -> NDArray[np.float64]:
        """Estimate the time of the multiply-adds, shape (n,)."""
        w, vectors, pixels, panels = self.w, self.vectors(columns), self.multipliers(columns), columns["tile_f"][:, 2]
        vector_products = weights * w.batch * prod(covered_size(w)) / np.gcd(panels, self.unit.lanes)
        min_accumulators = min(_FEW_ACCUMULATORS, self.unit.registers // 2)
        condition = _CONDITION_COST if self.unit.multiplies_scalars else _CONDITION_AND_BROADCAST_COST
        has_few, has_many = vectors * pixels < min_accumulators, vectors * pixels > _MANY_ACCUMULATORS
        is_repeated = has_many & (columns["tile_rx"][:, 1] < w.kernel[1])
        extra_cost = (
            _FEW_ACCUMULATORS_COST * has_few
            + _MANY_ACCUMULATORS_COST * (has_many & (max(w.kernel) > 1))
            + _CONFLICT_COST * (self._lines_in_set(columns) > _WAYS)
            + self.broadcasting(columns)
            + self._order_cost(columns)
            + (condition + _REPEATED_CONDITION_COST * is_repeated) * (columns["pad_at"] == "inline")
        )
        computed = vector_products / 2 * (np.maximum(1.0, 1 / vectors + 1 / pixels) + extra_cost)
        return np.asarray(computed * active_share(w, columns) if skips(w) else computed)

    def _order_cost(self, columns: Columns) -> NDArray[np.float64]:
        """Estimate the additional cost of a multiply-add in some orders of loops, shape (n,)."""
        if self.unit.multiplies_scalars:
            return np.zeros(len(columns["tile_order"]))
        rows_inside, columns_inside = (columns[f"tile_{name}"][:, 1] > 1 for name in ("ry", "rx"))
        taps_together = (rows_inside == columns_inside) & (min(self.w.kernel) > 1)
        return np.asarray(_FILTERS_INSIDE_COST * (columns["tile_order"] == "yxf") + _TAPS_COST * taps_together)

    def _load_cost(self, columns: Columns) -> NDArray[np.float64]:
        """Estimate the cost of repeated loads into the caches, shape (n,), times the values per cache line."""
        # A quarter of each cache is reserved for data outside of this loop nest.
        nest, room = self.nest(columns), [3 * size // 4 // FLOAT_BYTES for size in (_FIRST_CACHE_BYTES, CACHE_BYTES)]
        near, far = map(nest.loads, room)
        is_waited_for = self.multipliers(columns) < _PIXELS_THAT_HIDE_LOADS
        return _NEAR_LINE_COST * near["weight"] * is_waited_for + _SHARED_LINE_COST * (far["weight"] + far["data"])

    def _lines_in_set(self, columns: Columns) -> NDArray[np.float64]:
        """Return the number of a register tile's pixels that share a set of the first-level cache, shape (n,)."""
        w, rows, row_columns = self.w, columns["tile_y"][:, 2], columns["tile_x"][:, 1]
        period = _WAY_BYTES // FLOAT_BYTES
        gap = np.where(columns["pad_at"] == "inline", 0, _LINE) if leaves_gaps(w) else 0
        pixel = w.in_channels + gap
        step, row = w.strides[1] * pixel, w.strides[0] * pixel * w.padded_width
        common = np.gcd(np.where(row_columns > 1, np.gcd(step, period), period), np.where(rows > 1, row, period))
        return np.asarray(rows * row_columns / np.minimum(period // common, _WAY_BYTES // CACHE_LINE_BYTES))

    def _n_padded(self, columns: Columns) -> NDArray[np.int64]:
        """Return the number of elements that padding writes, shape (n,): all data, or the rows that a chunk reads."""
        w = self.w
        rows = (columns["tile_y"][:, 1:].prod(axis=1) - 1) * w.strides[0] + (w.kernel[0] - 1) * w.dilation[0] + 1
        in_chunks, at_once = self.chunks(columns) * rows, w.batch * w.padded_height
        n_pixels = np.select([columns["pad_at"] == "parallel", columns["pad_at"] == "root"], [in_chunks, at_once], 0)
        return np.asarray(n_pixels * w.padded_width * w.in_channels)

    def nest(self, columns: Columns) -> LoopNest:
        """Return the loop nests of n configs."""
        return self.nest_of(columns, np.gcd(columns["tile_f"][:, 2], self.unit.lanes), self.vectors(columns))

    def nest_of(self, columns: Columns, lanes: NDArray[np.int64], vectors: NDArray[np.int64]) -> LoopNest:
        """Return the loop nests of n configs that read a row of a panel in `vectors` vectors of `lanes` lanes."""
        splits = {name: columns[f"tile_{name}"] for name in ("rc", "ry", "rx")}
        inner_first = {name: split[:, 1] for name, split in reversed(splits.items())}
        annotations = unroll(columns, self.multipliers(columns) * vectors, inner_first)
        outer = [Loop(f"{name}_outer", name, split[:, 0], 6 + at) for at, (name, split) in enumerate(splits.items())]
        inner = [
            Loop(f"{name}_inner", name, split[:, 1], 9 + at, annotations[name])
            for at, (name, split) in enumerate(splits.items())
        ]
        size = (covered_size(self.w)[1], padded_filters(self.unit, self.w))
        return self.tile(columns, lanes, [*outer, *inner], size)
