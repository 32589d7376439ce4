"""The spaces of convolutions and dense layers of packed words that AMX multiplies; needs no compiler.

The knobs mean the same as in the vectorized loop nests, but the register tile is a call. A call sums over tiles of up
to 16 rows of data, 16 columns of weights and 16 packed words; see ``runtime/tiles.c``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.space import Constraint, Space
from anole.space.loops import Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.conv2d_space import DirectTiles, conv2d_space, covered_size, padded_filters
from anole.targets.cpu.templates.product_space import DenseTiles, dense_space
from anole.task import BatchMatmul, Conv2d, Dense, Workload

SIDE = 16
"""Maximum number of rows of a tile, and of packed words in a row."""

_MAX_ACCUMULATORS = 1 << 12
"""Maximum number of accumulators of a call: they are on the stack, and stay in the first-level cache."""

_MIN_ROWS = 5
"""Minimum number of rows of a dense layer for which tiles are faster than vectors."""

# Terms of `_cycles`. If two vectors of products start in each cycle, tiles were measured to be 4.3 times as fast.

_ROW_CYCLES, _ROWS_STARTED, _LOAD_CYCLES, _ACCUMULATOR_CYCLES, _CALL_CYCLES = 1.85, 2, 16.0, 0.1, 60.0
"""Cost of multiplying a row of a tile; start-up cost of a tile, in rows; cost of loading a tile of weights, of storing
an accumulator and reading it again, and of a call."""

_WEIGHT_CYCLES, _THREADS_START_CYCLES = 0.05, 3000.0


def supports_tiles(unit: VectorUnit, w: Workload) -> bool:
    """Whether a workload of packed words may be multiplied in tiles."""
    return w.dtype in unit.tile_types and (isinstance(w, Dense) or (isinstance(w, Conv2d) and w.groups == 1))


def in_groups(words: int) -> tuple[int, int]:
    """Return the number and the size of the largest equal groups of packed words that fit a row of a tile."""
    size = next(size for size in range(SIDE, 0, -1) if words % size == 0)
    return words // size, size


def runs(w: Conv2d) -> tuple[tuple[int, int], int]:
    """Return the number of contiguous runs that each pixel reads along rows and columns, and a run's packed words."""
    if w.dilation[1] > 1:
        return w.kernel, w.in_channels
    return (w.kernel[0], 1), w.kernel[1] * w.in_channels


def tiles_are_faster(unit: VectorUnit, threads: int, w: Conv2d | Dense) -> bool:
    """Whether tiles should be faster than vectors."""
    if isinstance(w, Dense):
        return w.batch >= _MIN_ROWS
    tiles, vectors = conv2d_tiles_space(unit, threads, w), conv2d_space(unit, threads, w)
    return tiles.merit_of(tiles.best_sampled) > vectors.merit_of(vectors.best_sampled)


@cache
def conv2d_tiles_space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Return the space of a convolution; a register tile's row or single column of pixels fills 1 or 2 tiles."""
    tiles = _ConvolutionInTiles(unit, threads, w)
    names = ("tile_f", "tile_y", "tile_x", "parallel_order", "tile_order", "pad_at")
    knobs = [knob for knob in conv2d_space(unit, threads, w).knobs if knob.name in names]
    no_inline = Constraint("tiles read padding from memory", lambda columns: np.asarray(columns["pad_at"] != "inline"))
    constraints = [*tiles.attainable_constraints(knobs), no_inline]
    return Space(knobs, constraints, tiles.nest, merit=lambda columns: -tiles.cycles(columns))


@cache
def dense_tiles_space(unit: VectorUnit, threads: int, w: Dense) -> Space:
    """Return the space of a dense layer in tiles; ``tile_y`` splits rows into (parallel, tiles per call, tile rows)."""
    tiles = _DenseInTiles(unit, threads, BatchMatmul(1, w.batch, w.in_features, w.out_features), prefetches=False)
    knobs = [knob for knob in dense_space(unit, threads, w).knobs if knob.name in ("tile_y", "tile_x")]
    return Space(knobs, tiles.constraints(tiles.enough_chunks), tiles.nest, merit=tiles.merit)


def strips(w: Conv2d, rows: Any, columns: Any) -> tuple[Any, Any]:
    """Return the number of strips of a register tile's pixels, and the pixels per strip, which are a tile's rows."""
    length, n_lines = (rows, columns) if w.out_width == 1 else (columns, rows)
    halves = 1 + (length > SIDE)
    return n_lines * halves, -(-length // halves)


@dataclass(frozen=True)
class _ConvolutionInTiles(DirectTiles):
    """AMX tiles of pixels and filters of a convolution."""

    unfit: ClassVar[str] = "the accumulators do not fill tiles, or exceed 4096"

    def fit(self, columns: Columns) -> NDArray[np.bool_]:
        rows, row_columns, panel = columns["tile_y"][:, 2], columns["tile_x"][:, 1], columns["tile_f"][:, 2]
        in_strips = (row_columns <= SIDE) | ((rows == 1) & (row_columns <= 2 * SIDE))
        return np.asarray(in_strips & (panel % SIDE == 0) & (rows * row_columns * panel <= _MAX_ACCUMULATORS))

    def _compute_cost(self, columns: Columns, weights: int) -> NDArray[np.float64]:
        w, panel = self.w, columns["tile_f"][:, 2]
        n_strips, rows = strips(w, columns["tile_y"][:, 2], columns["tile_x"][:, 1])
        calls = w.batch * prod(covered_size(w)) * padded_filters(self.unit, w) / (self.multipliers(columns) * panel)
        taps, words = runs(w)
        return np.asarray(calls * _cycles(n_strips, rows, panel, prod(taps) * in_groups(words)[0]))

    def nest(self, columns: Columns) -> LoopNest:
        """Return the loop nests of n configs."""
        extents = {"rc": self.w.in_channels, "ry": self.w.kernel[0], "rx": self.w.kernel[1]}
        reduction = [Loop(f"{name}_inner", name, extent, 9 + at) for at, (name, extent) in enumerate(extents.items())]
        lanes = np.gcd(columns["tile_f"][:, 2], self.unit.lanes)
        return self.tile(columns, lanes, reduction, (covered_size(self.w)[1], padded_filters(self.unit, self.w)))


@dataclass(frozen=True)
class _DenseInTiles(DenseTiles):
    """AMX tiles of rows and output features of a dense layer."""

    unfit: ClassVar[str] = _ConvolutionInTiles.unfit

    def fit(self, columns: Columns) -> NDArray[np.bool_]:
        y, panel = columns["tile_y"], columns["tile_x"][:, 2]
        return np.asarray((panel % SIDE == 0) & (y[:, 1] * y[:, 2] * panel <= _MAX_ACCUMULATORS))

    def merit(self, columns: Columns) -> NDArray[np.float64]:
        """Return the merit of configs, shape (n,): the negative of the estimated cycles."""
        y, x, chunks = columns["tile_y"], columns["tile_x"], self.chunks(columns)
        calls = chunks * x[:, 1] * _cycles(y[:, 1], y[:, 2], x[:, 2], in_groups(self.w.inner)[0])
        streamed = _WEIGHT_CYCLES * self.w.inner * self.width * y[:, 0]
        per_thread = (calls + streamed) * (-(-chunks // self.threads) / chunks)
        return np.asarray(-per_thread - _THREADS_START_CYCLES * (chunks > 1))

    def nest(self, columns: Columns) -> LoopNest:
        """Return the loop nests of n configs."""
        unsplit = np.broadcast_to([1, self.w.inner], (len(columns["tile_y"]), 2))
        steps = np.zeros(len(unsplit), dtype=np.int64)
        return super().nest({**columns, "tile_k": unsplit, "auto_unroll_max_step": steps})


def _cycles(
    n_strips: NDArray[np.int64], rows: NDArray[np.int64], panel: NDArray[np.int64], groups: int
) -> NDArray[np.float64]:
    """Estimate the time of one call, shape (n,): products hide the loads of weights, which two strips share."""
    tiles = panel / SIDE
    multiplied, loaded = n_strips * (rows + _ROWS_STARTED) * tiles, -(-n_strips // 2) * tiles
    step = np.maximum(_ROW_CYCLES * multiplied, _LOAD_CYCLES * loaded)
    return np.asarray(_CALL_CYCLES + groups * step + _ACCUMULATOR_CYCLES * n_strips * rows * panel)
