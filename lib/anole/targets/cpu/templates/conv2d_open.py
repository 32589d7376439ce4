"""The open space of a direct convolution on the CPU: every split of every axis, also with tails; needs no compiler.

The loop nest is that of `conv2d_space`, whose constraints and selections are left out. What these know, a search has to
find out: most configs spill registers, compute much that is discarded, or leave threads idle.
"""

from __future__ import annotations

from anole.space import Space, covering_knob, option_knob
from anole.space.loops import LoopNest
from anole.space.space import Columns
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.conv2d_space import conv2d_nest, conv2d_space
from anole.targets.cpu.templates.tile_orders import ALL_TILE_ORDERS
from anole.task import Conv2d

VERSION = 1


def conv2d_open(unit: VectorUnit, threads: int, w: Conv2d) -> Space:
    """Returns the open space of a convolution with a single group, which holds all configs of its constrained space."""
    space = conv2d_space(unit, threads, w)
    known = {knob.name: knob.values for knob in space.knobs}

    def describe(columns: Columns) -> LoopNest:
        return conv2d_nest(unit, w, columns, unit.lanes_of_each(columns["tile_f"][:, 2]))

    wider = [
        covering_knob("tile_f", w.out_channels, 3, known["tile_f"], agent="spatial"),
        covering_knob("tile_y", w.out_height, 3, known["tile_y"], agent="spatial"),
        covering_knob("tile_x", w.out_width, 2, known["tile_x"], agent="spatial"),
        option_knob("tile_order", ALL_TILE_ORDERS),
    ]
    return space.opened(wider, describe)
