"""The space of a Winograd convolution on the CPU: knobs, loop nest and analytical model; needs no compiler.

The nest, outermost first: a parallel loop over blocks of tiles and chunks of filters, in which the block's data is
transformed once; for each weight panel, a matrix product for each point of a tile, whose accumulators never leave the
vector registers; and the transform of these products to outputs, with the epilogue. Intermediate results have the size
of a block and stay in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from anole.record import Config
from anole.space import Constraint, Knob, Space, option_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.cpu.templates.conv2d_space import filter_knob, padded_filters
from anole.targets.cpu.templates.register_tiles import CACHE_BYTES, CACHE_LINE_BYTES, RegisterTiles
from anole.targets.cpu.templates.skip_padding import data_share, skips
from anole.targets.shared.output_tiles import OutputTiles, tile_count
from anole.task import Conv2d

_SIZES = {3: (2, 4, 6), 5: (2, 4)}
"""Outputs along a side of a tile, by kernel size; a tile takes at most 8 x 8 products.

The relative L2 errors (from float64, 512 channels of normal data) are 0.7e-6 for F(2x2, 3x3), 2.4e-6 for F(4x4, 3x3)
and 9.3e-6 for F(6x6, 3x3). They are 2.4e-6 for F(2x2, 5x5) and 7.3e-6 for F(4x4, 5x5).
"""

_MAX_TILES = 256
_UNROLLED_CHANNELS = (1, 2, 4)
_PREFETCHED_CHANNELS = (4, 16)
"""Input channels between two prefetches: each costs a separate step, but fewer prefetches issue more requests each."""

_SHARED_CACHE_BYTES = 16 << 20
"""Approximate part of the last-level cache that is left for weights."""

_NEAR_LINE_COST, _SHARED_LINE_COST, _MEMORY_LINE_COST, _NOT_PREFETCHED_COST = 1.2, 1.8, 6.1, 0.15
"""Terms of `_WinogradTiles.cycles`: cost of a cache line of weights from a core's own cache, from a shared cache, and
from memory; additional cost if it is not prefetched."""

_SLOW_MEMORY_FACTOR = 2.0
"""Relative cost of a line from memory on (older) CPUs without AVX-512, fitted to 340 configs of six convolutions
on AVX2."""

_DATA_COST, _DATA_BEFORE_COST, _OUTPUT_COST = 0.08, 0.47, 0.19
"""Terms of `_WinogradTiles.cycles`: cost of a tile's transforms per vector of channels, in units of its squared points:
of data inside a chunk, of data before the chunks, and of products."""


def can_winograd(w: Conv2d) -> bool:
    """Whether a convolution has a 3x3 or 5x5 kernel, stride 1 and one group."""
    return w.kernel[0] == w.kernel[1] in _SIZES and w.strides == (1, 1) and w.groups == 1


def winograd_is_faster(unit: VectorUnit, threads: int, w: Conv2d, direct: Conv2d | None = None) -> bool:
    """Whether Winograd should be faster than direct convolution, estimated from operations and memory traffic.

    `direct` is the direct convolution if its workload differs, such as one with packed words.
    """
    space = winograd_space(unit, threads, w)
    cycles = -space.merit_of(space.best_sampled)
    w = direct or w
    weights = w.kernel[0] * w.kernel[1] * w.in_channels * padded_filters(unit, w)
    products = weights * w.batch * w.out_height * w.out_width / unit.lanes / 2
    if skips(w):
        products *= data_share(w)
    direct_cycles = products + _memory_line_cost(unit) * weights * FLOAT_BYTES / CACHE_LINE_BYTES
    return cycles < direct_cycles / threads


def _memory_line_cost(unit: VectorUnit) -> float:
    return _MEMORY_LINE_COST if unit.multiplies_scalars else _SLOW_MEMORY_FACTOR * _MEMORY_LINE_COST


def output_tiles(w: Conv2d, config: Config) -> OutputTiles:
    """Return the output tiles of a config."""
    tiles, register = config["tile_p"]
    return OutputTiles.of(w, config["tile_size"], tiles * register)


@cache
def winograd_space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Return the space of a convolution for which `can_winograd` holds.

    Knobs: ``tile_size`` is the outputs along a side of a tile, such as 4 for F(4x4, 3x3); ``tile_f`` is as for direct
    convolution; ``tile_p`` is the tiles of a block as (tile, register), which determines the number of blocks;
    ``unroll_rc`` is the number of input channels summed in one reduction step; ``prefetch_rc`` is the number of input
    channels between two prefetches of the next point's weights, or 0 for none; ``parallel_order`` is the order of the
    parallel loops over filters (f) and blocks of tiles (y); ``data_at`` places the data transform: inside each parallel
    chunk (parallel), or before all chunks (root).
    """
    tiles = _WinogradTiles(unit, threads, w)
    knobs = [
        option_knob("tile_size", _SIZES[w.kernel[0]], agent="spatial", balanced=True),
        filter_knob(unit, w),
        _tile_knob(unit, w),
        option_knob("unroll_rc", [n for n in _UNROLLED_CHANNELS if w.in_channels % n == 0], agent="reduction"),
        option_knob(
            "prefetch_rc", [0, *(n for n in _PREFETCHED_CHANNELS if w.in_channels % n == 0)], agent="reduction"
        ),
        option_knob("parallel_order", ("fy", "yf")),
        option_knob("data_at", ("parallel", "root")),
    ]
    attainable = tiles.attainable_by_size(knobs)

    def required(name: str, columns: Columns) -> NDArray[np.int64]:
        sizes = sorted(attainable)
        return np.array([attainable[size][name] for size in sizes])[np.searchsorted(sizes, columns["tile_size"])]

    constraints = [
        *tiles.constraints(
            lambda columns: required("chunks", columns), lambda columns: required("accumulators", columns)
        ),
        Constraint("the blocks have room for half as many tiles again, or more", tiles.are_filled),
        Constraint("the intermediate results do not fit the cache", tiles.are_cached),
        Constraint(
            "the blocks have room for over an eighth more tiles, and can be filled better",
            lambda columns: tiles.are_well_filled(columns) >= required("filling", columns),
        ),
        Constraint(
            "more loads than multiply-adds, which other register tiles avoid",
            lambda columns: tiles.are_fed(columns) >= required("feeding", columns),
        ),
    ]
    return Space(knobs, constraints, tiles.nest, merit=lambda columns: -tiles.cycles(columns))


def _tile_knob(unit: VectorUnit, w: Conv2d) -> Knob:
    """Return the knob of all useful values of (tile, register).

    Any number of tiles in registers is allowed; the number of such groups in a block must suit some tile size.
    """
    counts = [tile_count(w, size) for size in _SIZES[w.kernel[0]]]
    values = tuple(
        (tiles, register)
        for register in range(1, min(unit.registers - 2, max(counts)) + 1)
        for tiles in range(1, _MAX_TILES // register + 1)
        if any(_is_useful(tiles, register, count) for count in counts)
    )
    features = np.log2(np.array(values, dtype=np.float32) + 1)
    return Knob("tile_p", values, features, ("tile_p.0", "tile_p.1"), "spatial")


def _is_useful(tiles: int, register: int, count: int) -> bool:
    """Whether blocks are equal, or a power of two of register groups, and have little padding."""
    blocks = -(-count // (tiles * register))
    is_even = tiles.bit_count() == 1 or -(-count // register) % tiles == 0
    return is_even and 2 * blocks * tiles * register < 3 * count


@dataclass(frozen=True)
class _WinogradTiles(RegisterTiles):
    """Register tiles of filters and output tiles."""

    w: Conv2d

    def multipliers(self, columns: Columns) -> NDArray[np.int64]:
        """Return the output tiles in registers, shape (n,)."""
        return np.asarray(columns["tile_p"][:, 1])

    def chunks(self, columns: Columns) -> NDArray[np.int64]:
        return np.asarray(self._blocks(columns) * columns["tile_f"][:, 0])

    def attainable_by_size(self, knobs: Sequence[Knob]) -> Mapping[int, Mapping[str, int]]:
        """Return, by tile size, the minimum values that a config can attain together."""
        tables = {knob.name: knob.table for knob in knobs}
        f, p = (grid.ravel() for grid in np.indices((len(tables["tile_f"]), len(tables["tile_p"]))))
        demands = {"filling": (self.are_well_filled, 1), "feeding": (self.are_fed, 1)}
        by_size = {}
        for size in tables["tile_size"].tolist():
            columns = {"tile_size": np.full(len(f), size), "tile_f": tables["tile_f"][f], "tile_p": tables["tile_p"][p]}
            columns["data_at"] = np.full(len(f), "root")
            valid = self.fit(columns) & self.are_filled(columns) & self.are_cached(columns)
            by_size[size] = self.attainable(columns, valid, demands)
        return by_size

    def are_filled(self, columns: Columns) -> NDArray[np.bool_]:
        """Whether padding is less than half of the number of tiles, shape (n,)."""
        return np.asarray(2 * self._tiles(columns) < 3 * tile_count(self.w, columns["tile_size"]))

    def are_well_filled(self, columns: Columns) -> NDArray[np.bool_]:
        """Whether padding is at most an eighth of the number of tiles, shape (n,)."""
        return np.asarray(8 * self._tiles(columns) <= 9 * tile_count(self.w, columns["tile_size"]))

    def are_fed(self, columns: Columns) -> NDArray[np.bool_]:
        """Whether a reduction step has at most as many loads of weights and data as multiply-adds, shape (n,)."""
        return np.asarray(self.vectors(columns) + self.multipliers(columns) <= self.accumulators(columns))

    def are_cached(self, columns: Columns) -> NDArray[np.bool_]:
        """Whether a block's intermediate results fit the entire cache, shape (n,)."""
        inputs = np.where(columns["data_at"] == "parallel", self.w.in_channels, 0)
        elements = self._side(columns) ** 2 * columns["tile_p"].prod(axis=1) * (inputs + columns["tile_f"][:, 2])
        return np.asarray(FLOAT_BYTES * elements <= CACHE_BYTES)

    def cycles(self, columns: Columns) -> NDArray[np.float64]:
        """Estimate the time of configs, shape (n,), in cycles in which a core starts two vector multiply-adds.

        Multiply-adds wait only for the loads of their operands. Weights come from the cache in which the previous block
        left them. The transforms take longer than their multiply-adds if a tile does not fit the registers. The
        constants are fitted to 2000 configs of 16 convolutions; half of the times are within an eighth of the estimate.
        """
        w, filters = self.w, padded_filters(self.unit, self.w)
        points, blocks, tiles = self._side(columns) ** 2, self._blocks(columns), self._tiles(columns)
        f_parallel, inside = columns["tile_f"][:, 0], columns["data_at"] == "parallel"
        vectors, panel = self.vectors(columns), columns["tile_f"][:, 2]
        loads = 1 / vectors + 1 / self.multipliers(columns)
        weights = points * w.in_channels * filters
        products = weights * tiles * vectors / panel / 2 * np.maximum(1.0, loads)
        bytes_between = FLOAT_BYTES * weights / np.where(columns["parallel_order"] == "fy", f_parallel, 1)
        is_cached = [bytes_between <= CACHE_BYTES, bytes_between <= _SHARED_CACHE_BYTES]
        memory = _memory_line_cost(self.unit)
        reload_cost = np.select(is_cached, [_NEAR_LINE_COST, _SHARED_LINE_COST], memory)
        first_load_cost = memory + _NOT_PREFETCHED_COST * (columns["prefetch_rc"] == 0)
        streamed = weights * FLOAT_BYTES / CACHE_LINE_BYTES * (first_load_cost + reload_cost * (blocks - 1))
        transformed = points**2 * tiles / self.unit.lanes
        data = transformed * w.in_channels
        chunks = blocks * f_parallel
        work = products + streamed + _OUTPUT_COST * transformed * filters + _DATA_COST * data * f_parallel * inside
        data_before = _DATA_BEFORE_COST * data / self.threads * ~inside
        return np.asarray(work * (-(-chunks // self.threads) / chunks) + data_before)

    def nest(self, columns: Columns) -> LoopNest:
        w, f, p, steps = self.w, columns["tile_f"], columns["tile_p"], columns["unroll_rc"]
        side, f_first = self._side(columns), columns["parallel_order"] == "fy"
        lanes = np.gcd(f[:, 2], self.unit.lanes)
        parallel, register = Annotation.PARALLEL, Annotation.UNROLLED
        loops = (
            Loop("f_parallel", "f", f[:, 0], np.where(f_first, 0, 1), parallel),
            Loop("p_parallel", "p", self._blocks(columns), np.where(f_first, 1, 0), parallel),
            Loop("f_tile", "f", f[:, 1], 2),
            Loop("point_y", "a", side, 3),
            Loop("point_x", "b", side, 4),
            Loop("p_tile", "p", p[:, 0], 5),
            Loop("rc_outer", "rc", w.in_channels // steps, 6),
            Loop("rc_inner", "rc", steps, 7, register),
            Loop("p_register", "p", p[:, 1], 8, register),
            Loop("f_register", "f", f[:, 2] // lanes, 9, register),
            Loop("f_vector", "f", lanes, 10, Annotation.VECTORIZED),
        )
        filters, tiles = padded_filters(self.unit, w), self._tiles(columns)
        at = ({"a": 1}, {"b": 1})
        data = Buffer("data", (side, side, tiles, w.in_channels), (*at, {"p": 1}, {"rc": 1}))
        weight = Buffer("weight", (filters, side, side, w.in_channels), ({"f": 1}, *at, {"rc": 1}))
        out = Buffer("out", (side, side, tiles, filters), (*at, {"p": 1}, {"f": 1}))
        return LoopNest(loops, (data, weight, out))

    def _side(self, columns: Columns) -> NDArray[np.int64]:
        """Return the points along a side of a tile, shape (n,); each needs one product per channel and filter."""
        return np.asarray(columns["tile_size"] + self.w.kernel[0] - 1)

    def _blocks(self, columns: Columns) -> NDArray[np.int64]:
        """Return the number of blocks of tiles, shape (n,)."""
        return np.asarray(-(-tile_count(self.w, columns["tile_size"]) // columns["tile_p"].prod(axis=1)))

    def _tiles(self, columns: Columns) -> NDArray[np.int64]:
        """Return the number of tiles in all blocks, shape (n,), padding of the last block included."""
        return np.asarray(self._blocks(columns) * columns["tile_p"].prod(axis=1))
