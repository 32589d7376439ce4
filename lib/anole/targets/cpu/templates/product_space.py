"""The spaces of matrix products on the CPU (dense layers, batched matmul): knobs, loop nests and analytical models.

The nest, outermost first: a parallel loop over chunks of the batch, columns and rows; tiles of columns and rows; the
reduction; the register tile. The columns of a dense layer are its output features. Needs no compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from anole.space import Knob, Space, option_knob, split_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.cpu.templates.register_tiles import CACHE_BYTES, RegisterTiles, covering, evenness, unroll, waking
from anole.task import BatchMatmul, Dense

PACKED_AT = ("inline", "tile", "root")
"""Where the right operand may be packed into panels: not at all, per tile, or entirely before the product."""

_MAX_ROWS_IN_REGISTERS = 16
_STEPS_AHEAD = (0, 32, 64)
_BROADCASTING_COST = 6.0
"""Merit lost if broadcasts make multiply-adds twice as slow; fitted to 320 configs of 4 products on AVX2."""

_DENSE_PIPES_FED, _BATCH_MATMUL_PIPES_FED = 4, 12
"""Number of accumulators beyond which more bring no speedup; lower if memory is the bottleneck."""

_IMBALANCE_COST = 16.0

_MAX_SHARING_ROWS, _MAX_WORDS = 8, 4
"""Rows that share an unpacked value, and packed words unpacked in sequence, beyond which more do not help."""


def dense_prefetches(w: Dense) -> bool:
    """Whether prefetching weights is an option: only if they come from memory and several rows use them.

    For a single row, the hardware prefetcher runs far enough ahead. Many rows form several tiles, which find the
    weights in the cache.
    """
    is_one_tile = 1 < covering(w.batch) <= _MAX_ROWS_IN_REGISTERS
    return is_one_tile and FLOAT_BYTES * w.in_features * w.out_features >= CACHE_BYTES


@cache
def dense_space(unit: VectorUnit, threads: int, w: Dense) -> Space:
    """Return the space of a dense layer.

    Knobs, named as in AutoTVM's ``dense_pack.x86``: ``tile_y`` splits the rows and ``tile_x`` the output features into
    (parallel, tile, register), ``tile_k`` the reduction into (outer, inner); ``auto_unroll_max_step`` and
    ``unroll_explicit`` as for convolutions. If several rows use weights that exceed the cache, also ``prefetch_k``: the
    number of reduction steps by which weights are prefetched ahead.
    """
    tiles = DenseTiles(unit, threads, BatchMatmul(1, w.batch, w.in_features, w.out_features), dense_prefetches(w))
    prefetch = [option_knob("prefetch_k", _STEPS_AHEAD, agent="reduction")] if tiles.prefetches else []
    knobs = [*tiles.splits(), *_unroll_knobs(), *prefetch]
    return Space(knobs, tiles.constraints(tiles.enough_chunks), tiles.nest, merit=tiles.merit)


@cache
def weight_only_space(unit: VectorUnit, threads: int, w: Dense) -> Space:
    """Return the space of a dense layer with weight-only quantization: over packed words, without prefetches."""
    assert w.weights is not None
    packed = BatchMatmul(1, w.batch, w.in_features // w.weights.numbers, w.out_features)
    tiles = _WeightOnlyTiles(unit, threads, packed, False, w.weights.numbers)
    knobs = [*tiles.splits(), *_unroll_knobs()]
    return Space(knobs, tiles.constraints(tiles.enough_chunks), tiles.nest, merit=tiles.merit)


@cache
def batch_matmul_space(unit: VectorUnit, threads: int, w: BatchMatmul) -> Space:
    """Return the space of a batched matmul of two activations.

    Knobs besides those of a dense layer: ``pack_at`` places the packing of the right operand into panels as wide as the
    register tile.
    """
    tiles = _BatchMatmulTiles(unit, threads, w)
    # Unpacked vectors need contiguous float32 columns that fill registers.
    in_place = unit.round_up(w.columns) == w.columns and not w.transpose_right and w.dtype == "float32"
    knobs = [*tiles.splits(), option_knob("pack_at", PACKED_AT if in_place else PACKED_AT[1:]), *_unroll_knobs()]
    return Space(knobs, tiles.constraints(tiles.enough_chunks), tiles.nest, merit=tiles.merit)


def _unroll_knobs() -> list[Knob]:
    return [option_knob("auto_unroll_max_step", (0, 16, 64, 512)), option_knob("unroll_explicit", (0, 1))]


@dataclass(frozen=True)
class _ProductTiles(RegisterTiles):
    """Register tiles of rows and of columns of the right operand."""

    w: BatchMatmul
    panel: ClassVar[str] = "tile_x"

    @property
    def rows(self) -> int:
        """Number of rows to compute."""
        return covering(self.w.rows)

    @property
    def width(self) -> int:
        """Number of columns to compute."""
        return self.unit.round_up(self.w.columns)

    def multipliers(self, columns: Columns) -> NDArray[np.int64]:
        """Return the rows of a tile, shape (n,)."""
        return np.asarray(columns["tile_y"][:, 2])

    def chunks(self, columns: Columns) -> NDArray[np.int64]:
        return np.asarray(self.w.batch * columns["tile_y"][:, 0] * columns["tile_x"][:, 0])

    def enough_chunks(self, _: Columns) -> int:
        """Return the number of chunks that keeps all threads busy, or the maximum if it is smaller."""
        return min(self.threads, self.w.batch * self.w.rows * self.width // self.unit.lanes)

    def splits(self) -> list[Knob]:
        """Return the knobs that split rows, columns and reduction."""
        widest = self.unit.lanes * self.unit.registers // 2

        def panels_fill_registers(split: tuple[int, ...]) -> bool:
            return split[2] <= widest and split[2] % self.unit.lanes == 0

        return [
            split_knob("tile_y", self.rows, 3, lambda split: split[2] <= _MAX_ROWS_IN_REGISTERS, agent="spatial"),
            split_knob("tile_x", self.width, 3, panels_fill_registers, agent="spatial"),
            split_knob("tile_k", self.w.inner, 2, agent="reduction"),
        ]

    def tile(self, columns: Columns, chunks: Sequence[Loop], buffers: tuple[Buffer, ...]) -> LoopNest:
        """Return the loop nests of n configs; the given parallel loops have levels below 3."""
        y, x, k = columns["tile_y"], columns["tile_x"], columns["tile_k"]
        lanes = self.unit.lanes_of_each(x[:, 2])
        vectors = x[:, 2] // lanes
        annotation = unroll(columns, y[:, 2] * vectors, {"k_inner": k[:, 1]})["k_inner"]
        loops = (
            *chunks,
            Loop("x_tile", "x", x[:, 1], 3),
            Loop("y_tile", "y", y[:, 1], 4),
            Loop("k_outer", "k", k[:, 0], 5),
            Loop("k_inner", "k", k[:, 1], 6, annotation),
            Loop("y_register", "y", y[:, 2], 7, Annotation.UNROLLED),
            Loop("x_register", "x", vectors, 8, Annotation.UNROLLED),
            Loop("x_vector", "x", lanes, 9, Annotation.VECTORIZED),
        )
        return LoopNest(loops, buffers)


@dataclass(frozen=True)
class DenseTiles(_ProductTiles):
    """Tiles of a dense layer, as a batch of one matmul, with or without the option to prefetch weights."""

    prefetches: bool

    def merit(self, columns: Columns) -> NDArray[np.float64]:
        """Return the merit of configs, shape (n,): high for even shares of threads and few loads per multiply-add.

        For a single row, reading the weights limits the speed, and only equal shares of the threads matter. A layer
        that one thread may compute should be computed by one thread.
        """
        rows, panel, row_chunks = self.multipliers(columns), self.vectors(columns), columns["tile_y"][:, 0]
        merit = self.shares(columns) + np.minimum(rows * panel, _DENSE_PIPES_FED)
        merit += 0.5 * np.log2(columns["tile_k"][:, 1]) - 4.0 * columns["unroll_explicit"]
        if self.w.rows > 1:
            # Every panel of a chunk reads the chunk's rows again, and every chunk of rows reads all weights.
            rows_bytes = FLOAT_BYTES * self.w.inner * self.rows / row_chunks
            merit += 4.0 * np.log2(rows * panel / (rows + panel)) - 0.5 * np.log2(row_chunks)
            merit += 4.0 * (columns["prefetch_k"] > 0) if self.prefetches else 0.0
            merit -= 2.0 * (columns["tile_x"][:, 1] > 1) * np.log2(np.maximum(1.0, rows_bytes / CACHE_BYTES))
            if FLOAT_BYTES * self.w.inner * self.width <= CACHE_BYTES:
                # Several chunks of columns read all rows again, although the cache holds all weights.
                all_rows_bytes = FLOAT_BYTES * self.w.inner * self.rows
                merit -= 2.0 * (columns["tile_x"][:, 0] > 1) * np.log2(max(1.0, all_rows_bytes / CACHE_BYTES))
        return np.asarray(merit)

    def shares(self, columns: Columns) -> NDArray[np.float64]:
        """Return the merit of evenly shared work, minus the cost of waking threads, shape (n,)."""
        chunks = self.chunks(columns)
        balance = np.log2(chunks / (-(-chunks // self.threads) * self.threads))
        return np.asarray(_IMBALANCE_COST * balance - waking(self.w, self.threads, chunks))

    def nest(self, columns: Columns) -> LoopNest:
        """Return the loop nests of n configs."""
        chunks = (
            Loop("x_parallel", "x", columns["tile_x"][:, 0], 0, Annotation.PARALLEL),
            Loop("y_parallel", "y", columns["tile_y"][:, 0], 1, Annotation.PARALLEL),
        )
        data = Buffer("data", (self.rows, self.w.inner), ({"y": 1}, {"k": 1}))
        weight = Buffer("weight", (self.width, self.w.inner), ({"x": 1}, {"k": 1}))
        return self.tile(columns, chunks, (data, weight, Buffer("out", (self.rows, self.width), ({"y": 1}, {"x": 1}))))


@dataclass(frozen=True)
class _WeightOnlyTiles(DenseTiles):
    """Tiles of a dense layer with weight-only quantization; a packed 32-bit word has `weights` weights."""

    weights: int

    def fit(self, columns: Columns) -> NDArray[np.bool_]:
        """Whether accumulators, packed words, their unpacked values and one multiplier fit, shape (n,)."""
        return np.asarray(self.accumulators(columns) + self.vectors(columns) + self.weights + 1 <= self.unit.registers)

    def merit(self, columns: Columns) -> NDArray[np.float64]:
        """Return the merit of configs, shape (n,): high for even shares and many rows that share unpacked values.

        Several packed words are unpacked in sequence, but only one vector of a panel at a time.
        """
        rows, words, steps = self.multipliers(columns), columns["tile_k"][:, 1], self.accumulators(columns)
        is_unrolled = unroll(columns, steps, {"k": words})["k"] == Annotation.UNROLLED
        merit = self.shares(columns) + evenness(self.chunks(columns), self.threads)
        merit += 2.0 * np.log2(np.minimum(rows, _MAX_SHARING_ROWS)) - np.log2(steps)
        merit += is_unrolled * np.log2(np.minimum(words, _MAX_WORDS)) - 0.1 * np.log2(words)
        return np.asarray(merit - 4.0 * np.log2(columns["tile_y"][:, 0]))


@dataclass(frozen=True)
class _BatchMatmulTiles(_ProductTiles):
    """Tiles of a batched matmul."""

    def merit(self, columns: Columns) -> NDArray[np.float64]:
        """Return the merit of configs, shape (n,): multiply-adds against loads, packing, loop restarts and waking."""
        rows, panel = self.multipliers(columns), self.vectors(columns)
        merit = np.minimum(rows * panel, _BATCH_MATMUL_PIPES_FED)
        merit = merit + 4.0 * np.log2(rows * panel / (rows + panel)) + 0.5 * np.log2(rows)
        merit += np.log2(columns["tile_k"][:, 1]) - 4.0 * columns["unroll_explicit"]
        merit -= _BROADCASTING_COST * self.broadcasting(columns)
        merit -= np.where(columns["pack_at"] == "tile", 2.0 * np.log2(columns["tile_y"][:, 0]), 1.0)
        return np.asarray(merit - waking(self.w, self.threads, self.chunks(columns)))

    def nest(self, columns: Columns) -> LoopNest:
        w, y, x = self.w, columns["tile_y"], columns["tile_x"]
        chunks = (
            Loop("b", "b", w.batch, 0, Annotation.PARALLEL),
            Loop("y_parallel", "y", y[:, 0], 1, Annotation.PARALLEL),
            Loop("x_parallel", "x", x[:, 0], 2, Annotation.PARALLEL),
        )
        row = np.where(columns["pack_at"] == "inline", self.width, x[:, 2])
        data = Buffer("data", (w.batch, self.rows, w.inner), ({"b": 1}, {"y": 1}, {"k": 1}))
        right = Buffer("right", (w.batch, w.inner, row), ({"b": 1}, {"k": 1}, {"x": 1}))
        out = Buffer("out", (w.batch, self.rows, self.width), ({"b": 1}, {"y": 1}, {"x": 1}))
        return self.tile(columns, chunks, (data, right, out))
