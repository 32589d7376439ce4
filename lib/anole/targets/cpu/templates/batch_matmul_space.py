"""The knobs of a product of two computed tensors on the CPU and the loop nest of a config; needs no compiler.

The nest, outermost first: a parallel loop over the batch, rows and columns; tiles of columns and rows; the reduction;
the register tile.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from anole.space import Space, option_knob, split_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.constraints import registers_suffice, threads_are_fed
from anole.targets.cpu.templates.rounding import covering
from anole.targets.cpu.templates.serial_layers import waking
from anole.task import BatchMatmul

VERSION = 2

PACKED_AT = ("inline", "tile", "root")
"""Where the right operand may be packed into panels: nowhere, a panel where a tile needs it, or all of it first."""

_ROWS_IN_REGISTERS = 16
_PIPES_FED = 12
"""Number of accumulators beyond which more are not faster."""


@cache
def batch_matmul_space(unit: VectorUnit, threads: int, w: BatchMatmul) -> Space:
    """Returns the space of products of two computed tensors.

    Knobs: ``tile_y`` splits the rows and ``tile_x`` the columns into (parallel, tile, register), ``tile_k`` the
    reduction into (outer, inner); ``pack_at`` says where the right operand is packed into panels as wide as the
    register tile; ``auto_unroll_max_step`` and ``unroll_explicit`` as for convolutions.
    """
    columns = unit.padded(w.columns)
    widest = unit.lanes * unit.registers // 2

    def panels_are_whole_registers(split: tuple[int, ...]) -> bool:
        return split[2] <= widest and split[2] % unit.lanes == 0

    # Unpacked, a vector is whole and contiguous only if columns are contiguous and fill whole registers.
    in_place = columns == w.columns and not w.transpose_right
    knobs = [
        split_knob("tile_y", covering(w.rows), 3, lambda split: split[2] <= _ROWS_IN_REGISTERS, agent="spatial"),
        split_knob("tile_x", columns, 3, panels_are_whole_registers, agent="spatial"),
        split_knob("tile_k", w.inner, 2, agent="reduction"),
        option_knob("pack_at", PACKED_AT if in_place else PACKED_AT[1:]),
        option_knob("auto_unroll_max_step", (0, 16, 64, 512)),
        option_knob("unroll_explicit", (0, 1)),
    ]
    chunks = min(threads, w.batch * w.rows * columns // unit.lanes)

    constraints = [
        registers_suffice(unit, lambda columns: _accumulators(unit, columns), lambda columns: _vectors(unit, columns)),
        threads_are_fed(lambda columns: _chunks(w, columns), lambda _: chunks),
    ]
    return Space(
        knobs,
        constraints,
        lambda columns: batch_matmul_nest(unit, w, columns),
        merit=lambda columns: _merit(unit, w, columns),
    )


def _merit(unit: VectorUnit, w: BatchMatmul, columns: Columns) -> NDArray[np.float64]:
    """Returns the merit of configs, shape (n,): multiply-adds against loads, packing, reduction restarts and waking."""
    rows, panel = columns["tile_y"][:, 2], _vectors(unit, columns)
    worth = np.minimum(rows * panel, _PIPES_FED) + 4.0 * np.log2(rows * panel / (rows + panel)) + 0.5 * np.log2(rows)
    worth += np.log2(columns["tile_k"][:, 1]) - 4.0 * columns["unroll_explicit"]
    worth -= np.where(columns["pack_at"] == "tile", 2.0 * np.log2(columns["tile_y"][:, 0]), 1.0)
    worth -= waking(_chunks(w, columns))
    return np.asarray(worth)


def _chunks(w: BatchMatmul, columns: Columns) -> NDArray[np.int64]:
    """Returns the number of chunks that the threads share, shape (n,)."""
    return np.asarray(w.batch * columns["tile_y"][:, 0] * columns["tile_x"][:, 0])


def _vectors(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """Returns how many vector registers hold one row of a panel, shape (n,)."""
    return np.asarray(columns["tile_x"][:, 2] // unit.lanes)


def _accumulators(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """Returns how many vector registers hold accumulators, shape (n,)."""
    return np.asarray(columns["tile_y"][:, 2] * _vectors(unit, columns))


def batch_matmul_nest(unit: VectorUnit, w: BatchMatmul, columns: Columns) -> LoopNest:
    """Returns the loop nests of n configs."""
    y, x, k = columns["tile_y"], columns["tile_x"], columns["tile_k"]
    lanes = unit.lanes_of_each(x[:, 2])
    vectors = x[:, 2] // lanes
    steps = y[:, 2] * vectors * k[:, 1]
    unrolled = (columns["unroll_explicit"] == 1) & (steps <= columns["auto_unroll_max_step"])
    loops = (
        Loop("b", "b", w.batch, 0, Annotation.PARALLEL),
        Loop("y_parallel", "y", y[:, 0], 1, Annotation.PARALLEL),
        Loop("x_parallel", "x", x[:, 0], 2, Annotation.PARALLEL),
        Loop("x_tile", "x", x[:, 1], 3),
        Loop("y_tile", "y", y[:, 1], 4),
        Loop("k_outer", "k", k[:, 0], 5),
        Loop("k_inner", "k", k[:, 1], 6, np.where(unrolled, Annotation.UNROLLED, Annotation.SERIAL)),
        Loop("y_register", "y", y[:, 2], 7, Annotation.UNROLLED),
        Loop("x_register", "x", vectors, 8, Annotation.UNROLLED),
        Loop("x_vector", "x", lanes, 9, Annotation.VECTORIZED),
    )
    rows, width = covering(w.rows), unit.padded(w.columns)
    row = np.where(columns["pack_at"] == "inline", width, x[:, 2])
    data = Buffer("data", (w.batch, rows, w.inner), ({"b": 1}, {"y": 1}, {"k": 1}))
    right = Buffer("right", (w.batch, w.inner, row), ({"b": 1}, {"k": 1}, {"x": 1}))
    out = Buffer("out", (w.batch, rows, width), ({"b": 1}, {"y": 1}, {"x": 1}))
    return LoopNest(loops, (data, right, out))
