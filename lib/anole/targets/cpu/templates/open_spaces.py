"""The open spaces of the CPU: every split of every axis, also with tails, and all configs of the constrained space.

The loop nests are those of the constrained spaces, whose constraints and selections are left out. What these know, a
search has to find out: most configs spill registers, compute much that is discarded, or leave threads idle. Needs no
compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from anole.space import Knob, Space, covering_knob, option_knob
from anole.space.loops import LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.conv2d_space import DirectTiles, conv2d_space
from anole.targets.cpu.templates.convolution_tiles import ALL_TILE_ORDERS
from anole.targets.cpu.templates.product_space import PACKED_AT, batch_matmul_space, dense_space
from anole.task import BatchMatmul, Conv2d, Dense, Workload

SpaceOf = Callable[[VectorUnit, int, Any], Space]
"""Maps a vector unit, the number of threads and a workload to its space."""


@dataclass(frozen=True)
class Opened:
    """An open space, and the constrained one whose configs it also holds.

    Attributes:
        version: the version of the open space alone.
        space: the open space.
        constrained: the constrained space; its config of most merit is the default.
        template: the class of the template, as ``module:object``.
    """

    version: int
    space: SpaceOf
    constrained: SpaceOf
    template: str


def opened(w: Workload) -> Opened | None:
    """Returns the open space of a workload, or None if it has none, as convolutions of several groups."""
    return None if isinstance(w, Conv2d) and w.groups > 1 else _OPENED.get(w.operator)


@cache
def conv2d_open(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Returns the open space of a direct convolution with a single group."""
    space, tiles = conv2d_space(unit, threads, w), DirectTiles(unit, threads, w)

    def describe(columns: Columns) -> LoopNest:
        panels = columns["tile_f"][:, 2]
        lanes = unit.lanes_of_each(panels)
        return tiles.nest_of(columns, lanes, panels // lanes)

    extents = {"tile_f": w.out_channels, "tile_y": w.out_height, "tile_x": w.out_width}
    return space.opened([*_covering(space, extents), option_knob("tile_order", ALL_TILE_ORDERS)], describe)


@cache
def dense_open(unit: VectorUnit, threads: int, w: Dense) -> Space:
    """Returns the open space of a dense layer."""
    space = dense_space(unit, threads, w)
    return space.opened(_covering(space, {"tile_y": w.batch, "tile_x": w.out_features}))


@cache
def batch_matmul_open(unit: VectorUnit, threads: int, w: BatchMatmul) -> Space:
    """Returns the open space of products of two computed tensors."""
    space = batch_matmul_space(unit, threads, w)
    wider = _covering(space, {"tile_y": w.rows, "tile_x": w.columns})
    return space.opened([*wider, option_knob("pack_at", PACKED_AT)])


def _covering(space: Space, extents: Mapping[str, int]) -> list[Knob]:
    """Returns knobs of all splits of extents, by their names, which also have the values of the space's own knobs."""
    known = {knob.name: knob.values for knob in space.knobs}
    return [
        covering_knob(name, extent, len(known[name][0]), known[name], agent="spatial")
        for name, extent in extents.items()
    ]


_TEMPLATES = "anole.targets.cpu.templates"
_OPENED: Mapping[str, Opened] = {
    "batch_matmul": Opened(1, batch_matmul_open, batch_matmul_space, f"{_TEMPLATES}.products:BatchMatmulTemplate"),
    "conv2d": Opened(1, conv2d_open, conv2d_space, f"{_TEMPLATES}.conv2d:Conv2dTemplate"),
    "dense": Opened(1, dense_open, dense_space, f"{_TEMPLATES}.products:DenseTemplate"),
}
"""The open space of each operator that has one."""

VERSIONS = {f"{operator}.open": each.version for operator, each in _OPENED.items()}
