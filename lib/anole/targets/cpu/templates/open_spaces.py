"""The open spaces of the CPU: all splits of all axes, including tails, and all configs of the constrained space.

The loop nests are the same as in the constrained spaces, but without constraints and preselected values. A search has
to discover what the constraints encode: most configs spill registers, compute much surplus, or leave threads idle.
Needs no compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from anole.space import Knob, Space, covering_knob, option_knob
from anole.space.loops import LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.attention_space import attention_space
from anole.targets.cpu.templates.conv2d_space import DirectTiles, conv2d_space
from anole.targets.cpu.templates.convolution_tiles import ALL_TILE_ORDERS
from anole.targets.cpu.templates.depthwise_space import depthwise_space
from anole.targets.cpu.templates.grouped_space import grouped_space
from anole.targets.cpu.templates.product_space import PACKED_AT, batch_matmul_space, dense_space, weight_only_space
from anole.task import Attention, BatchMatmul, Conv2d, Dense


@cache
def conv2d_open(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Return the open space of a direct convolution; with several groups, panels still divide a group's filters."""
    space, tiles = conv2d_space(unit, threads, w), DirectTiles(unit, threads, w)

    def describe(columns: Columns) -> LoopNest:
        panels = columns["tile_f"][:, 2]
        lanes = unit.lanes_of_each(panels)
        return tiles.nest_of(columns, lanes, panels // lanes)

    return _with_open_tiles(space, w, {"tile_f": w.out_channels} if w.groups == 1 else {}, describe)


@cache
def depthwise_open(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Return the open space of a depthwise convolution."""
    return _with_open_tiles(depthwise_space(unit, threads, w), w, {"tile_f": w.out_channels})


@cache
def grouped_open(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Return the open space of a convolution whose groups share vectors; panels still divide bundles."""
    return _with_open_tiles(grouped_space(unit, threads, w), w, {})


def _with_open_tiles(
    space: Space, w: Conv2d, extents: Mapping[str, int], describe: Callable[[Columns], LoopNest] | None = None
) -> Space:
    pixels = {"tile_y": w.out_height, "tile_x": w.out_width}
    return space.to_open(
        [*_covering_knobs(space, {**extents, **pixels}), option_knob("tile_order", ALL_TILE_ORDERS)], describe
    )


@cache
def dense_open(unit: VectorUnit, threads: int, w: Dense) -> Space:
    """Return the open space of a dense layer."""
    space = (dense_space if w.weights is None else weight_only_space)(unit, threads, w)
    return space.to_open(_covering_knobs(space, {"tile_y": w.batch, "tile_x": w.out_features}))


@cache
def batch_matmul_open(unit: VectorUnit, threads: int, w: BatchMatmul) -> Space:
    """Return the open space of a batched matmul of two activations."""
    space = batch_matmul_space(unit, threads, w)
    knobs = _covering_knobs(space, {"tile_y": w.rows, "tile_x": w.columns})
    return space.to_open([*knobs, option_knob("pack_at", PACKED_AT)])


@cache
def attention_open(unit: VectorUnit, threads: int, w: Attention) -> Space:
    """Return the open space of attention."""
    space = attention_space(unit, threads, w)
    return space.to_open(_covering_knobs(space, {"tile_y": w.rows}))


def _covering_knobs(space: Space, extents: Mapping[str, int]) -> list[Knob]:
    """Return knobs with all covering splits of extents, by name, and all values of the space's knobs."""
    values_by_name = {knob.name: knob.values for knob in space.knobs}
    return [
        covering_knob(name, extent, len(values_by_name[name][0]), values_by_name[name], agent="spatial")
        for name, extent in extents.items()
    ]
