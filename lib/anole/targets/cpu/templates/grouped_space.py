"""The knobs of a grouped convolution on the CPU and the loop nest of a config; needs no compiler.

Groups of few filters share vectors: a bundle is a number of neighbouring groups whose filters fill whole vectors. The
nest, outermost first: a parallel loop over (batch, filters, rows); the tile loops inside a chunk; channels and kernel
rows, with the channels inside and unrolled if they are shuffled; the register tile, over the vectors of whole bundles,
pixels and kernel columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import lcm

import numpy as np
from numpy.typing import NDArray

from anole.space import Space, option_knob, split_knob
from anole.space.loops import Annotation, Buffer, Loop, LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.constraints import latency_is_hidden, registers_suffice, threads_are_fed
from anole.targets.cpu.templates.conv2d_space import ROWS_IN_REGISTERS, attainable
from anole.targets.cpu.templates.serial_layers import evenness
from anole.targets.cpu.templates.tile_orders import TILE_ORDERS, tile_places
from anole.task import Conv2d

VERSION = 1

REGISTER_ORDERS = tuple("".join(order) for order in permutations("fpr"))
"""The order of the loops of a register tile: vectors of filters (f), pixels (p) and kernel columns (r)."""

_BLENDED_GROUPS = 2
"""The most groups in a vector that are blended as fast as shuffled; they need no unrolled reduction."""

_SHUFFLED_VECTORS = 2
"""The number of registers from whose lanes one instruction can shuffle."""

_ACCUMULATORS = 12
"""With more, the compiler has too few registers for the data that the next kernel column reads again."""


@dataclass(frozen=True)
class Bundle:
    """Neighbouring groups whose filters share vectors.

    groups: number of groups.
    filters: filters of all groups together, rounded up to whole vectors.
    group_filters: filters of one group.
    group_channels: input channels of one group.
    lanes: lanes of a vector.
    """

    groups: int
    filters: int
    group_filters: int
    group_channels: int
    lanes: int

    @classmethod
    def of(cls, unit: VectorUnit, w: Conv2d) -> Bundle:
        """Returns the smallest bundle that fills whole vectors, or one of all groups if these are fewer."""
        filters = w.out_channels // w.groups
        groups = min(w.groups, lcm(filters, unit.lanes) // filters)
        return cls(groups, unit.padded(groups * filters), filters, w.in_channels // w.groups, unit.lanes)

    @property
    def channels(self) -> int:
        """Input channels of all groups together."""
        return self.groups * self.group_channels

    @property
    def vectors(self) -> int:
        """Number of vectors that hold the filters."""
        return self.filters // self.lanes

    @property
    def is_shuffled(self) -> bool:
        """Whether vectors read all channels of their groups at once, which covers all steps of the reduction."""
        groups = [len(set(self.groups_of(vector))) for vector in range(self.vectors)]
        return max(groups) > _BLENDED_GROUPS and max(groups) * self.group_channels <= _SHUFFLED_VECTORS * self.lanes

    def groups_of(self, vector: int) -> list[int]:
        """Returns the group of each lane; lanes without a filter have the last group."""
        first = vector * self.lanes
        return [min(f // self.group_filters, self.groups - 1) for f in range(first, first + self.lanes)]


def is_bundled(unit: VectorUnit, w: Conv2d) -> bool:
    """Returns whether filters of several groups should share vectors, which requires enough registers."""
    if w.groups == 1 or w.groups == w.in_channels == w.out_channels or w.out_channels // w.groups % unit.lanes == 0:
        return False
    return Bundle.of(unit, w).filters <= unit.widest_panel


def n_bundles(unit: VectorUnit, w: Conv2d) -> int:
    """Returns the number of bundles; the last one may lack groups."""
    return -(-w.groups // Bundle.of(unit, w).groups)


@cache
def grouped_space(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Returns the space of a convolution for which `is_bundled` holds.

    Knobs: ``tile_f`` splits the filters of all bundles and ``tile_y`` the rows into (parallel, tile, register),
        ``tile_x`` the columns into (tile, register); ``register_order`` orders filters (f), pixels (p) and kernel
        columns (r); ``auto_unroll_max_step`` is the most vector operations of the unrolled reduction; ``tile_order``;
        and ``pad_at``, where the zero padding is written.
    """
    bundle, widest = Bundle.of(unit, w), unit.widest_panel

    def panels_are_whole_bundles(split: tuple[int, ...]) -> bool:
        return split[2] % bundle.filters == 0 and split[2] <= widest

    copied = any(w.padding) or bundle.channels * n_bundles(unit, w) > w.in_channels
    knobs = [
        split_knob("tile_f", _filters(unit, w), 3, panels_are_whole_bundles, agent="spatial"),
        split_knob("tile_y", w.out_height, 3, lambda split: split[2] <= ROWS_IN_REGISTERS, agent="spatial"),
        split_knob("tile_x", w.out_width, 2, lambda split: split[1] <= unit.registers, agent="spatial"),
        option_knob("register_order", REGISTER_ORDERS),
        option_knob("auto_unroll_max_step", (0, 64, 256)),
        option_knob("tile_order", TILE_ORDERS),
        option_knob("pad_at", ("parallel", "root") if copied else ("none",)),
    ]
    chunks, enough = attainable(unit, threads, w, knobs)

    constraints = [
        registers_suffice(unit, lambda columns: _accumulators(unit, columns), lambda columns: _vectors(unit, columns)),
        latency_is_hidden(lambda columns: _accumulators(unit, columns), lambda _: enough),
        threads_are_fed(lambda columns: _chunks(w, columns), lambda _: chunks),
    ]
    return Space(
        knobs,
        constraints,
        lambda columns: _nest(unit, w, columns),
        merit=lambda columns: _merit(unit, threads, w, columns),
    )


def _merit(unit: VectorUnit, threads: int, w: Conv2d, columns: Columns) -> NDArray[np.float64]:
    """Returns the merit of configs, shape (n,): register tiles neither small nor large, and chunks that are even."""
    chunks = _chunks(w, columns)
    worth = -2.0 * np.abs(np.log2(_accumulators(unit, columns) / _ACCUMULATORS))
    worth += 0.5 * (columns["register_order"] == "pfr") + 1.0 * (columns["auto_unroll_max_step"] == 0)
    worth += 1.0 * (columns["pad_at"] == "parallel") + 1.0 * (columns["tile_order"] == "fyx")
    worth -= 0.5 * _vectors(unit, columns)
    worth += evenness(chunks, threads)
    return np.asarray(worth)


def _filters(unit: VectorUnit, w: Conv2d) -> int:
    return n_bundles(unit, w) * Bundle.of(unit, w).filters


def _vectors(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """Returns how many vector registers hold one panel, shape (n,)."""
    return np.asarray(columns["tile_f"][:, 2] // unit.lanes)


def _accumulators(unit: VectorUnit, columns: Columns) -> NDArray[np.int64]:
    """Returns how many vector registers hold accumulators, shape (n,)."""
    return np.asarray(columns["tile_y"][:, 2] * columns["tile_x"][:, 1] * _vectors(unit, columns))


def _chunks(w: Conv2d, columns: Columns) -> NDArray[np.int64]:
    return np.asarray(w.batch * columns["tile_f"][:, 0] * columns["tile_y"][:, 0])


def _reduction(unit: VectorUnit, w: Conv2d, columns: Columns) -> dict[str, NDArray[np.int64] | Annotation]:
    """Returns the annotations of the loops over kernel rows and channels."""
    steps, unrolled = _accumulators(unit, columns) * w.kernel[1], dict[str, NDArray[np.int64] | Annotation]()
    inner_first = [("rc", w.in_channels // w.groups), ("ry", w.kernel[0])]
    for name, extent in inner_first if Bundle.of(unit, w).is_shuffled else reversed(inner_first):
        steps = steps * extent
        fits = steps <= columns["auto_unroll_max_step"]
        unrolled[name] = np.where(fits, Annotation.UNROLLED, Annotation.SERIAL)
    if Bundle.of(unit, w).is_shuffled:
        unrolled["rc"] = Annotation.UNROLLED
    return unrolled


def _nest(unit: VectorUnit, w: Conv2d, columns: Columns) -> LoopNest:
    f, y, x = columns["tile_f"], columns["tile_y"], columns["tile_x"]
    order = tile_places(columns["tile_order"])
    places = np.array([[order.index(loop) for loop in "fpr"] for order in REGISTER_ORDERS])
    place = 8 + 2 * places[np.searchsorted(REGISTER_ORDERS, columns["register_order"])]
    parallel, register, unrolled = Annotation.PARALLEL, Annotation.UNROLLED, _reduction(unit, w, columns)
    channels, shuffled = w.in_channels // w.groups, Bundle.of(unit, w).is_shuffled
    loops = (
        Loop("n", "n", w.batch, 0, parallel),
        Loop("f_parallel", "f", f[:, 0], 1, parallel),
        Loop("y_parallel", "y", y[:, 0], 2, parallel),
        Loop("f_tile", "f", f[:, 1], 3 + order[:, 0]),
        Loop("y_tile", "y", y[:, 1], 3 + order[:, 1]),
        Loop("x_tile", "x", x[:, 0], 3 + order[:, 2]),
        Loop("ry", "ry", w.kernel[0], 6 if shuffled else 7, unrolled["ry"]),
        Loop("rc", "rc", channels, 7 if shuffled else 6, unrolled["rc"]),
        Loop("rx", "rx", w.kernel[1], place[:, 2], register),
        Loop("y_register", "y", y[:, 2], place[:, 1], register),
        Loop("x_register", "x", x[:, 1], place[:, 1] + 1, register),
        Loop("f_register", "f", f[:, 2] // unit.lanes, place[:, 0], register),
        Loop("f_vector", "f", unit.lanes, 14, Annotation.VECTORIZED),
    )
    rows, row_columns = {"y": w.strides[0], "ry": w.dilation[0]}, {"x": w.strides[1], "rx": w.dilation[1]}
    height, width = w.height + w.padding[0] + w.padding[2], w.width + w.padding[1] + w.padding[3]
    data = Buffer("data", (w.batch, height, width, w.in_channels), ({"n": 1}, rows, row_columns, {"rc": 1}))
    filters = _filters(unit, w)
    weight = Buffer("weight", (filters, *w.kernel, channels), ({"f": 1}, {"ry": 1}, {"rx": 1}, {"rc": 1}))
    out = Buffer("out", (w.batch, w.out_height, w.out_width, filters), ({"n": 1}, {"y": 1}, {"x": 1}, {"f": 1}))
    return LoopNest(loops, (data, weight, out))
