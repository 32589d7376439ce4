"""The open space of a dense layer on the CPU: every split of every axis, also with tails; needs no compiler."""

from __future__ import annotations

from anole.space import Space, covering_knob
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.dense_space import dense_space
from anole.task import Dense

VERSION = 1


def dense_open(unit: VectorUnit, threads: int, w: Dense) -> Space:
    """Returns the open space of a dense layer, which holds all configs of its constrained space."""
    space = dense_space(unit, threads, w)
    known = {knob.name: knob.values for knob in space.knobs}
    return space.opened(
        [
            covering_knob("tile_y", w.batch, 3, known["tile_y"], agent="spatial"),
            covering_knob("tile_x", w.out_features, 3, known["tile_x"], agent="spatial"),
        ]
    )
