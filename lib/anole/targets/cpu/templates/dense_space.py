"""The knobs of a dense layer on the CPU and the loop nest of a config; needs no compiler.

The nest, outermost first: a parallel loop over output features and rows; tiles of features and rows; the reduction; the
register tile.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from anole.space import Space, option_knob, split_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.cpu.templates.constraints import registers_suffice, threads_are_fed
from anole.targets.cpu.templates.conv2d_space import CACHE_BYTES
from anole.targets.cpu.templates.rounding import covering, covering_version
from anole.targets.cpu.templates.serial_layers import waking
from anole.task import Dense

VERSION = 2
PREFETCH_VERSION = 1

_ROWS_IN_REGISTERS = 16
_STEPS_AHEAD = (0, 32, 64)
_PIPES_FED = 4
"""Number of accumulators that suffices where memory is the limit."""

_OF_IMBALANCE = 16.0


def dense_prefetches(w: Dense) -> bool:
    """Returns whether prefetching weights is an option: where they come from memory and several rows use them.

    A single row uses them so fast that the processor's own prefetcher looks far enough ahead. Many rows form several
    tiles, which find the weights in the cache.
    """
    is_one_tile = 1 < covering(w.batch) <= _ROWS_IN_REGISTERS
    return is_one_tile and FLOAT_BYTES * w.in_features * w.out_features >= CACHE_BYTES


def dense_version(w: Dense) -> int:
    """Returns the version of a layer's template, which rises with its options."""
    return VERSION + (PREFETCH_VERSION if dense_prefetches(w) else 0) + covering_version(w.batch)


@cache
def dense_space(unit: VectorUnit, threads: int, w: Dense) -> Space:
    """Returns the space of a dense layer.

    Knobs, named as in AutoTVM's ``dense_pack.x86``: ``tile_y`` splits the rows and ``tile_x`` the output features into
    (parallel, tile, register), ``tile_k`` the reduction into (outer, inner); ``auto_unroll_max_step`` and
    ``unroll_explicit`` as for convolutions. Where several rows use weights that exceed the cache, also ``prefetch_k``:
    how many reduction steps ahead the weights are prefetched.
    """
    rows, features = covering(w.batch), unit.padded(w.out_features)
    widest = unit.lanes * unit.registers // 2

    knobs = [
        split_knob("tile_y", rows, 3, lambda split: split[2] <= _ROWS_IN_REGISTERS, agent="spatial"),
        split_knob(
            "tile_x", features, 3, lambda split: split[2] <= widest and split[2] % unit.lanes == 0, agent="spatial"
        ),
        split_knob("tile_k", w.in_features, 2, agent="reduction"),
        option_knob("auto_unroll_max_step", (0, 16, 64, 512)),
        option_knob("unroll_explicit", (0, 1)),
    ]
    if dense_prefetches(w):
        knobs.append(option_knob("prefetch_k", _STEPS_AHEAD, agent="reduction"))
    chunks = min(threads, w.batch * features // unit.lanes)

    constraints = [
        registers_suffice(unit, lambda columns: _accumulators(unit, columns), lambda columns: _vectors(unit, columns)),
        threads_are_fed(lambda columns: columns["tile_y"][:, 0] * columns["tile_x"][:, 0], lambda _: chunks),
    ]
    return Space(
        knobs,
        constraints,
        lambda columns: dense_nest(unit, w, columns),
        merit=lambda columns: _merit(unit, threads, w, columns),
    )


def _merit(unit: VectorUnit, threads: int, w: Dense, columns: Columns) -> NDArray[np.float64]:
    """Returns the merit of configs, shape (n,): how evenly threads share them, and how few loads a multiply-add takes.

    Reading the weights bounds the speed of a single row; the only choice left is to let the threads read equal shares.
    If one thread may do everything, it should.
    """
    rows, panel = columns["tile_y"][:, 2], _vectors(unit, columns)
    row_chunks = columns["tile_y"][:, 0]
    chunks = row_chunks * columns["tile_x"][:, 0]
    worth = _OF_IMBALANCE * np.log2(chunks / (-(-chunks // threads) * threads)) - waking(chunks)
    worth += np.minimum(rows * panel, _PIPES_FED)
    worth += 0.5 * np.log2(columns["tile_k"][:, 1]) - 4.0 * columns["unroll_explicit"]
    if w.batch > 1:
        # Every panel of a chunk reads the chunk's rows again, and every chunk of rows all weights.
        rows_bytes = FLOAT_BYTES * w.in_features * covering(w.batch) / row_chunks
        worth += 4.0 * np.log2(rows * panel / (rows + panel)) - 0.5 * np.log2(row_chunks)
        worth += 4.0 * (columns["prefetch_k"] > 0) if dense_prefetches(w) else 0.0
        worth -= 2.0 * (columns["tile_x"][:, 1] > 1) * np.log2(np.maximum(1.0, rows_bytes / CACHE_BYTES))
    return np.asarray(worth)


def _vectors(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """Returns how many vector registers hold one row of a panel, shape (n,)."""
    return np.asarray(columns["tile_x"][:, 2] // unit.lanes)


def _accumulators(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """Returns how many vector registers hold accumulators, shape (n,)."""
    return np.asarray(columns["tile_y"][:, 2] * _vectors(unit, columns))


def dense_nest(unit: VectorUnit, w: Dense, columns: Columns) -> LoopNest:
    """Returns the loop nests of n configs."""
    y, x, k = columns["tile_y"], columns["tile_x"], columns["tile_k"]
    lanes = unit.lanes_of_each(x[:, 2])
    vectors = x[:, 2] // lanes
    steps = y[:, 2] * vectors * k[:, 1]
    unrolled = (columns["unroll_explicit"] == 1) & (steps <= columns["auto_unroll_max_step"])
    register = Annotation.UNROLLED
    loops = (
        Loop("x_parallel", "x", x[:, 0], 0, Annotation.PARALLEL),
        Loop("y_parallel", "y", y[:, 0], 1, Annotation.PARALLEL),
        Loop("x_tile", "x", x[:, 1], 2),
        Loop("y_tile", "y", y[:, 1], 3),
        Loop("k_outer", "k", k[:, 0], 4),
        Loop("k_inner", "k", k[:, 1], 5, np.where(unrolled, Annotation.UNROLLED, Annotation.SERIAL)),
        Loop("y_register", "y", y[:, 2], 6, register),
        Loop("x_register", "x", vectors, 7, register),
        Loop("x_vector", "x", lanes, 8, Annotation.VECTORIZED),
    )
    features = unit.padded(w.out_features)
    rows = covering(w.batch)
    data = Buffer("data", (rows, w.in_features), ({"y": 1}, {"k": 1}))
    weight = Buffer("weight", (features, w.in_features), ({"x": 1}, {"k": 1}))
    out = Buffer("out", (rows, features), ({"y": 1}, {"x": 1}))
    return LoopNest(loops, (data, weight, out))
