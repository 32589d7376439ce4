"""The common base of the CPU's direct, grouped and depthwise convolution spaces: knobs, tile orders and loop nest.

The nest, outermost first: a parallel loop over (batch, filters, rows); the tile loops inside a chunk; the reduction;
the register tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from anole.space import Constraint, Knob, option_knob, split_knob
from anole.space.loops import Annotation, Buffer, Ints, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.register_tiles import RegisterTiles
from anole.task import Conv2d

TILE_ORDERS = ("fyx", "yfx", "yxf")
"""The useful orders of the tile loops over filters, rows and columns, outermost first."""

ALL_TILE_ORDERS = tuple(sorted(map("".join, permutations("fyx"))))

_MAX_ROWS_IN_REGISTERS = 8


@dataclass(frozen=True)
class ConvolutionTiles(RegisterTiles):
    """Register tiles of filters and pixels.

    Knobs: ``tile_f`` splits the filters and ``tile_y`` the rows into (parallel, tile, register), ``tile_x`` the columns
    into (tile, register); ``tile_order`` orders the tile loops; ``pad_at`` places the copy that adds zero padding.
    """

    w: Conv2d

    def multipliers(self, columns: Columns) -> NDArray[np.int64]:
        """Return the pixels of a tile, shape (n,)."""
        return np.asarray(columns["tile_y"][:, 2] * columns["tile_x"][:, 1])

    def chunks(self, columns: Columns) -> NDArray[np.int64]:
        """Return the number of parallel chunks, shape (n,)."""
        return np.asarray(self.w.batch * columns["tile_f"][:, 0] * columns["tile_y"][:, 0])

    def pixel_knobs(self, rows: int, row_columns: int) -> list[Knob]:
        """Return the knobs that split rows and columns; with a single column, rows may fill the registers."""
        limit = self.unit.registers
        max_rows = limit if row_columns == 1 else _MAX_ROWS_IN_REGISTERS
        return [
            split_knob("tile_y", rows, 3, lambda split: split[2] <= max_rows, agent="spatial"),
            split_knob("tile_x", row_columns, 2, lambda split: split[1] <= limit, agent="spatial"),
        ]

    def order_knobs(self, pad_at: Sequence[str]) -> list[Knob]:
        """Return the knobs that order the tile loops and place the padding."""
        return [option_knob("tile_order", TILE_ORDERS), option_knob("pad_at", pad_at)]

    def attainable_constraints(self, knobs: Sequence[Knob]) -> list[Constraint]:
        """Return the constraints of a space whose first three knobs split filters, rows and columns."""
        tables = [np.unique(np.delete(knob.table, slice(1, -1), axis=1), axis=0) for knob in knobs[:3]]
        f, y, x = (table[at.ravel()] for table, at in zip(tables, np.indices([*map(len, tables)]), strict=True))
        # Tiles between the chunks and the registers do not matter.
        columns = {"tile_f": np.insert(f, 1, 1, axis=1), "tile_y": np.insert(y, 1, 1, axis=1), "tile_x": x}
        limits = self.attainable(columns, self.fit(columns))
        return self.constraints(lambda _: limits["chunks"], lambda _: limits["accumulators"])

    def tile(
        self,
        columns: Columns,
        lanes: Ints,
        reduction: Sequence[Loop],
        size: tuple[int, int],
        levels: tuple[Ints, Ints] = (14, 12),
    ) -> LoopNest:
        """Return the loop nests of n configs.

        Args:
            columns: the configs.
            lanes: lanes of a vector of filters.
            reduction: the reduction loops, from level 6; without a loop over channels, each filter reads one channel.
            size: number of columns and filters to compute.
            levels: levels of the register loop over vectors, and of the first of two loops over pixels; at most 14.
        """
        (out_width, filters), (vector_level, pixel_level) = size, levels
        f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
        f_first = columns["parallel_order"] == "fy" if "parallel_order" in columns else True
        order = tile_depths(columns["tile_order"])
        loops = (
            Loop("n", "n", self.w.batch, 0, Annotation.PARALLEL),
            Loop("f_parallel", "f", f[:, 0], np.where(f_first, 1, 2), Annotation.PARALLEL),
            Loop("y_parallel", "y", y[:, 0], np.where(f_first, 2, 1), Annotation.PARALLEL),
            Loop("f_tile", "f", f[:, 1], 3 + order[:, 0]),
            Loop("y_tile", "y", y[:, 1], 3 + order[:, 1]),
            Loop("x_tile", "x", x[:, 0], 3 + order[:, 2]),
            *reduction,
            Loop("y_register", "y", y[:, 2], pixel_level, Annotation.UNROLLED),
            Loop("x_register", "x", x[:, 1], pixel_level + 1, Annotation.UNROLLED),
            Loop("f_register", "f", np.asarray(f[:, 2] // lanes), vector_level, Annotation.UNROLLED),
            Loop("f_vector", "f", lanes, 15, Annotation.VECTORIZED),
        )
        return LoopNest(loops, self._buffers(out_width, filters, any(loop.axis == "rc" for loop in reduction)))

    def _buffers(self, out_width: int, filters: int, sums_channels: bool) -> tuple[Buffer, ...]:
        w = self.w
        rows, row_columns = {"y": w.strides[0], "ry": w.dilation[0]}, {"x": w.strides[1], "rx": w.dilation[1]}
        width = w.padded_width + (out_width - w.out_width) * w.strides[1]
        channels, channel = (w.in_channels, "rc") if sums_channels else (w.out_channels, "f")
        data = Buffer("data", (w.batch, w.padded_height, width, channels), ({"n": 1}, rows, row_columns, {channel: 1}))
        taps = Buffer("weight", (filters, *w.kernel), ({"f": 1}, {"ry": 1}, {"rx": 1}))
        summed = Buffer("weight", (*taps.shape, w.in_channels // w.groups), (*taps.index, {"rc": 1}))
        shape = (w.batch, w.out_height, out_width, filters)
        out = Buffer("out", shape, ({"n": 1}, {"y": 1}, {"x": 1}, {"f": 1}))
        return (data, summed if sums_channels else taps, out)


def panel_knob(unit: VectorUnit, filters: int, factor: int, within: int = 0) -> Knob:
    """Return the knob ``tile_f``, which splits filters into (parallel, tile, register).

    The number of filters in registers is a multiple of `factor` and, unless `within` is 0, a divisor of `within`.
    """

    def fits(split: tuple[int, ...]) -> bool:
        return split[2] <= unit.widest_panel and split[2] % factor == 0 and within % split[2] == 0

    return split_knob("tile_f", filters, 3, fits, agent="spatial")


def tile_order(name: str) -> tuple[int, ...]:
    """Return an order's loops, outermost first, as indices into (f, y, x)."""
    return tuple(map("fyx".index, name))


def tile_depths(orders: NDArray[np.str_]) -> NDArray[np.int64]:
    """Return the depths of the loops over f, y and x, 0 being outermost, shape (n, 3); `orders` has shape (n,)."""
    depths = np.array([np.argsort(tile_order(name)) for name in ALL_TILE_ORDERS])
    return np.asarray(depths[np.searchsorted(ALL_TILE_ORDERS, orders)])
