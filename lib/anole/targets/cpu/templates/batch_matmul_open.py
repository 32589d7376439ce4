"""The open space of a product of computed tensors on the CPU: every split, also with tails; needs no compiler."""

from __future__ import annotations

from anole.space import Space, covering_knob, option_knob
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.batch_matmul_space import PACKED_AT, batch_matmul_space
from anole.task import BatchMatmul

VERSION = 1


def batch_matmul_open(unit: VectorUnit, threads: int, w: BatchMatmul) -> Space:
    """Returns the open space of products of two computed tensors, which holds their constrained space."""
    space = batch_matmul_space(unit, threads, w)
    known = {knob.name: knob.values for knob in space.knobs}
    return space.opened(
        [
            covering_knob("tile_y", w.rows, 3, known["tile_y"], agent="spatial"),
            covering_knob("tile_x", w.columns, 3, known["tile_x"], agent="spatial"),
            option_knob("pack_at", PACKED_AT),
        ]
    )
