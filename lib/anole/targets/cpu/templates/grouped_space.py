"""The space of a grouped convolution on the CPU: knobs, loop nest and analytical model; needs no compiler.

Groups with few filters share vectors: a bundle consists of adjacent groups whose filters fill full vectors. The
reduction is over channels and kernel rows, with the channels inside and unrolled if they are shuffled; the register
tile is over the vectors of entire bundles, pixels and kernel columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import lcm

import numpy as np
from numpy.typing import NDArray

from anole.space import Space, option_knob
from anole.space.loops import Annotation, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.convolution_tiles import ConvolutionTiles, panel_knob
from anole.targets.cpu.templates.register_tiles import evenness, unroll
from anole.task import Conv2d

REGISTER_ORDERS = tuple("".join(order) for order in permutations("fpr"))
"""The orders of a register tile's loops: vectors of filters (f), pixels (p) and kernel columns (r)."""

_MAX_BLENDED_GROUPS = 2
"""Maximum number of groups per vector for which blending is as fast as shuffling, which unrolls the reduction."""

_PART_LANES = 4
"""Lanes of the 128-bit parts within which x86 shuffles a vector faster than it loads and blends values."""

_MAX_SHUFFLED_VECTORS = 2
"""Maximum number of source registers of a shuffle instruction."""

_BEST_ACCUMULATORS = 12
"""With more accumulators, too few registers are left for data that the next kernel column reuses."""


@dataclass(frozen=True)
class Bundle:
    """Adjacent groups whose filters share vectors; `filters` is rounded up to full vectors."""

    groups: int
    filters: int
    group_filters: int
    group_channels: int
    lanes: int

    @classmethod
    def of(cls, unit: VectorUnit, w: Conv2d) -> Bundle:
        """Return the smallest bundle that fills full vectors, or a bundle of all groups if there are fewer."""
        filters = w.out_channels // w.groups
        groups = min(w.groups, lcm(filters, unit.lanes) // filters)
        return cls(groups, unit.round_up(groups * filters), filters, w.in_channels // w.groups, unit.lanes)

    @property
    def channels(self) -> int:
        """Input channels of all groups."""
        return self.groups * self.group_channels

    @property
    def vectors(self) -> int:
        """Number of vectors that hold the filters."""
        return self.filters // self.lanes

    @property
    def is_shuffled(self) -> bool:
        """Whether vectors read all channels of their groups together, which covers all steps of the reduction."""
        groups = max(len(set(self.groups_of(vector))) for vector in range(self.vectors))
        is_faster = groups > _MAX_BLENDED_GROUPS or self.group_filters == self.group_channels == _PART_LANES
        return is_faster and groups * self.group_channels <= _MAX_SHUFFLED_VECTORS * self.lanes

    def groups_of(self, vector: int) -> list[int]:
        """Return the group of each lane; lanes without a filter belong to the last group."""
        first = vector * self.lanes
        return [min(f // self.group_filters, self.groups - 1) for f in range(first, first + self.lanes)]


def is_bundled(unit: VectorUnit, w: Conv2d) -> bool:
    """Whether filters of several groups should share vectors, which requires enough registers.

    Vectors of packed words cannot be blended from several groups.
    """
    has_one_filter = w.groups == w.in_channels == w.out_channels
    if w.dtype != "float32" or w.groups == 1 or has_one_filter or w.out_channels // w.groups % unit.lanes == 0:
        return False
    return Bundle.of(unit, w).filters <= unit.widest_panel


def n_bundles(unit: VectorUnit, w: Conv2d) -> int:
    """Return the number of bundles; the last one may have fewer groups."""
    return -(-w.groups // Bundle.of(unit, w).groups)


@cache
def grouped_space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Return the space of a convolution for which `is_bundled` holds.

    Knobs besides those of `ConvolutionTiles`, which split the filters of all bundles: ``register_order`` orders filters
    (f), pixels (p) and kernel columns (r); ``auto_unroll_max_step`` is the maximum number of vector operations of the
    unrolled reduction.
    """
    tiles, bundle = _GroupedTiles(unit, threads, w), Bundle.of(unit, w)
    is_copied = any(w.padding) or bundle.channels * n_bundles(unit, w) > w.in_channels
    knobs = [
        panel_knob(unit, tiles.filters, bundle.filters),
        *tiles.pixel_knobs(w.out_height, w.out_width),
        option_knob("register_order", REGISTER_ORDERS),
        option_knob("auto_unroll_max_step", (0, 64, 256)),
        *tiles.order_knobs(("parallel", "root") if is_copied else ("none",)),
    ]
    return Space(knobs, tiles.attainable_constraints(knobs), tiles.nest, merit=tiles.merit)


@dataclass(frozen=True)
class _GroupedTiles(ConvolutionTiles):
    @property
    def filters(self) -> int:
        """Computed filters of all bundles."""
        return n_bundles(self.unit, self.w) * Bundle.of(self.unit, self.w).filters

    def merit(self, columns: Columns) -> NDArray[np.float64]:
        """Return the merit of configs, shape (n,): register tiles of medium size, and even chunks."""
        best_accumulators = min(_BEST_ACCUMULATORS, self.unit.registers // 2)
        merit = -2.0 * np.abs(np.log2(self.accumulators(columns) / best_accumulators))
        merit += 0.5 * (columns["register_order"] == "pfr") + 1.0 * (columns["auto_unroll_max_step"] == 0)
        merit += 1.0 * (columns["pad_at"] == "parallel") + 1.0 * (columns["tile_order"] == "fyx")
        merit -= 0.5 * self.vectors(columns)
        if best_accumulators < _BEST_ACCUMULATORS:
            merit -= np.log2(columns["tile_y"][:, 2])  # only pixels of a row share data
        merit += evenness(self.chunks(columns), self.threads)
        return np.asarray(merit)

    def nest(self, columns: Columns) -> LoopNest:
        w, shuffled = self.w, Bundle.of(self.unit, self.w).is_shuffled
        depths = np.array([[order.index(loop) for loop in "fpr"] for order in REGISTER_ORDERS])
        levels = 8 + 2 * depths[np.searchsorted(REGISTER_ORDERS, columns["register_order"])]
        channels, (rows, taps) = w.in_channels // w.groups, w.kernel
        extents = {"rc": channels, "ry": rows} if shuffled else {"ry": rows, "rc": channels}
        annotations = unroll(columns, self.accumulators(columns) * taps, extents)
        reduction = [
            Loop("ry", "ry", rows, 6 if shuffled else 7, annotations["ry"]),
            Loop("rc", "rc", channels, 7 if shuffled else 6, Annotation.UNROLLED if shuffled else annotations["rc"]),
            Loop("rx", "rx", taps, levels[:, 2], Annotation.UNROLLED),
        ]
        size = (w.out_width, self.filters)
        return self.tile(columns, self.unit.lanes, reduction, size, (levels[:, 0], levels[:, 1]))
