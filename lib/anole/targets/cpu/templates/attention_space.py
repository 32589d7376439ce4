"""The space of attention on the CPU: its knobs, loop nest and analytical model.

The nest, outermost first: a parallel loop over batch elements and parts of their rows; chunks of rows, whose scores
stay in the cache; for both products, panels of columns, tiles of rows, the reduction, and the register tile. Needs no
compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from anole.space import Space, option_knob, split_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.cpu.templates.register_tiles import CACHE_BYTES, RegisterTiles, covering
from anole.task import Attention

_MAX_ROWS_IN_REGISTERS, _BEST_ROWS, _OTHER_ROWS_COST = 16, 6, 1.08
"""Rows of a register tile: their limit, the best number, and the relative cost of no multiple of it, on AVX2."""

_PANEL_VECTORS, _MIN_ACCUMULATORS = (1, 2, 3, 4), 10
"""Vectors of a panel, and accumulators below which multiply-adds wait for each other."""

_SOFTMAX_CYCLES, _WAKING_CYCLES = 14.0, 20_000.0
"""Cycles per vector of scores of everything between the products, and of waking other threads."""

_BYTES_PER_CYCLE, _MEMORY_COST = 16.0, 3.0
"""Bandwidth of the second-level cache, and the cost of scores that exceed it, relative to scores in the cache."""


@cache
def attention_space(unit: VectorUnit, threads: int, w: Attention) -> Space:
    """Return the space of attention.

    Knobs: ``tile_y`` splits the rows into (parallel, chunk, tile, register); ``panel_vectors`` is the number of vectors
    of a panel, into which keys and values are packed.
    """
    tiles = _AttentionTiles(unit, threads, w)
    splits = split_knob("tile_y", tiles.rows, 4, lambda split: split[3] <= _MAX_ROWS_IN_REGISTERS, agent="spatial")
    knobs = [splits, option_knob("panel_vectors", _PANEL_VECTORS, agent="spatial")]
    return Space(knobs, tiles.constraints(tiles.enough_chunks), tiles.nest, merit=tiles.merit)


def covered_rows(rows: int, parts: int = 1) -> int:
    """Return the number of rows to compute: at least `rows`, and a multiple of a good register tile in each part."""
    best = _BEST_ROWS * parts
    good = [n for n in range(rows, rows + best) if covering(n) == n]
    return min(good, key=lambda n: n * (1 if n % best == 0 else _OTHER_ROWS_COST))


@dataclass(frozen=True)
class _AttentionTiles(RegisterTiles):
    """Register tiles of both products: rows, and vectors of keys or of columns."""

    w: Attention

    @property
    def rows(self) -> int:
        """Number of rows to compute, for threads that share rows if they cannot share the batch evenly."""
        return covered_rows(self.w.rows, self.threads // gcd(self.w.batch, self.threads))

    def vectors(self, columns: Columns) -> NDArray[np.int64]:
        return np.asarray(columns["panel_vectors"])

    def multipliers(self, columns: Columns) -> NDArray[np.int64]:
        return np.asarray(columns["tile_y"][:, 3])

    def chunks(self, columns: Columns) -> NDArray[np.int64]:
        return np.asarray(self.w.batch * columns["tile_y"][:, 0])

    def enough_chunks(self, _: Columns) -> int:
        """Return the number of chunks that keeps all threads busy, or the maximum if it is smaller."""
        return min(self.threads, self.w.batch * self.rows // _MAX_ROWS_IN_REGISTERS or 1)

    def merit(self, columns: Columns) -> NDArray[np.float64]:
        """Return the merit of configs, shape (n,): minus the logarithm of the estimated cycles."""
        return np.asarray(-np.log2(self._cycles(columns)))

    def _cycles(self, columns: Columns) -> NDArray[np.float64]:
        """Estimate the cycles of the thread with the most chunks, shape (n,)."""
        w, y, lanes = self.w, columns["tile_y"].astype(np.float64), self.unit.lanes
        rows, vectors = y[:, 3], columns["panel_vectors"]
        keys, values = (-(-extent // (vectors * lanes)) for extent in (w.keys, w.columns))
        step = np.maximum(np.maximum(rows * vectors, _MIN_ACCUMULATORS), rows + vectors) / 2
        step = step * (1 + self.broadcasting(columns))
        tiles = y[:, 1] * y[:, 2]
        products = tiles * step * (keys * w.inner + values * w.keys)
        softmax = _SOFTMAX_CYCLES * tiles * rows * keys * vectors
        score_bytes = FLOAT_BYTES * y[:, 2] * rows * keys * vectors * lanes
        softmax = softmax * np.where(score_bytes > CACHE_BYTES // 2, _MEMORY_COST, 1.0)
        packed_bytes = FLOAT_BYTES * vectors * lanes * (keys * w.inner + values * w.keys)
        operands = packed_bytes * (2 + y[:, 1]) / _BYTES_PER_CYCLE
        chunks = self.chunks(columns)
        waking = _WAKING_CYCLES * ((chunks > 1) & (self.threads > 1))
        return np.asarray(-(-chunks // self.threads) * (products + softmax + operands) + waking)

    def nest(self, columns: Columns) -> LoopNest:
        """Return the loop nests of the scores of n configs."""
        w, y, vectors = self.w, columns["tile_y"], columns["panel_vectors"]
        keys = -(-w.keys // (vectors * self.unit.lanes))
        loops = (
            Loop("b", "b", w.batch, 0, Annotation.PARALLEL),
            Loop("y_parallel", "y", y[:, 0], 1, Annotation.PARALLEL),
            Loop("y_chunk", "y", y[:, 1], 2),
            Loop("x_tile", "x", keys, 3),
            Loop("y_tile", "y", y[:, 2], 4),
            Loop("k", "k", w.inner, 5),
            Loop("y_register", "y", y[:, 3], 6, Annotation.UNROLLED),
            Loop("x_register", "x", vectors, 7, Annotation.UNROLLED),
            Loop("x_vector", "x", self.unit.lanes, 8, Annotation.VECTORIZED),
        )
        width = keys * vectors * self.unit.lanes
        queries = Buffer("queries", (w.batch, self.rows, w.inner), ({"b": 1}, {"y": 1}, {"k": 1}))
        packed = Buffer("keys", (w.batch, w.inner, width), ({"b": 1}, {"k": 1}, {"x": 1}))
        scores = Buffer("scores", (w.batch, self.rows, width), ({"b": 1}, {"y": 1}, {"x": 1}))
        return LoopNest(loops, (queries, packed, scores))
