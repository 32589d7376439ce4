"""The design space of a convolution: the accelerator's block, its threads and its tiles (DCOC, Table 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError, TargetError
from anole.record import Config
from anole.space import Constraint, Space, option_knob
from anole.space.space import Columns
from anole.targets.vta.conv2d import SHIFT_AND_CLIP, Schedule, Step, check_schedule
from anole.targets.vta.geometry import Geometry
from anole.task import Conv2d

_BATCHES = (1, 2, 4, 8)
_BLOCKS = (8, 16, 32, 64, 128)
_THREADS = (1, 2)


@dataclass(frozen=True)
class Design:
    """What a config means.

    Attributes:
        geometry: of the accelerator.
        schedule: of the convolution on it.
    """

    geometry: Geometry
    schedule: Schedule


@cache
def conv2d_space(w: Conv2d, base: Geometry, search_hardware: bool) -> Space:
    """Returns the space of a convolution.

    Knobs, with the paper's names: of the hardware agent ``tile_b``, ``tile_ci`` and ``tile_co``, the block's batch,
    input and output channels; of the scheduling agent ``h_threading`` and ``oc_threading``; of the mapping agent
    ``tile_h`` and ``tile_w``, rows and columns of one tile. How many blocks of channels a tile has follows by a rule
    (`design_of`).

    Args:
        w: the convolution.
        base: the accelerator, but for its block where that is searched.
        search_hardware: whether the block is searched, or that of `base`.
    """
    knobs = [
        option_knob("tile_b", _BATCHES if search_hardware else (base.batch,), agent="hardware"),
        option_knob("tile_ci", _BLOCKS if search_hardware else (base.block_in,), agent="hardware"),
        option_knob("tile_co", _BLOCKS if search_hardware else (base.block_out,), agent="hardware"),
        option_knob("h_threading", _THREADS, agent="scheduling"),
        option_knob("oc_threading", _THREADS, agent="scheduling"),
        option_knob("tile_h", _divisors(w.out_height), agent="mapping"),
        option_knob("tile_w", _divisors(w.out_width), agent="mapping"),
    ]

    def can_be_lowered(columns: Columns) -> NDArray[np.bool_]:
        rows = zip(*(columns[name].tolist() for name in _KNOBS), strict=True)
        return np.array([_is_possible(w, base, row) for row in rows], dtype=bool)

    return Space(knobs, [Constraint("the accelerator cannot run it so", can_be_lowered)])


def design_of(
    w: Conv2d, base: Geometry, config: Mapping[str, Any], epilogue: tuple[Step, ...] = SHIFT_AND_CLIP
) -> Design:
    """Returns what a config means.

    Tiles have as many blocks of output channels as fit, and then as many of input channels.

    Raises:
        ConfigError: the accelerator cannot run it so; the message is the reason.
    """
    return _design(w, base, tuple(config[name] for name in _KNOBS), epilogue)


_KNOBS = ("tile_b", "tile_ci", "tile_co", "h_threading", "oc_threading", "tile_h", "tile_w")


@cache
def _is_possible(w: Conv2d, base: Geometry, values: tuple[int, ...]) -> bool:
    try:
        _design(w, base, values, SHIFT_AND_CLIP)
    except ConfigError:
        return False
    return True


def _design(w: Conv2d, base: Geometry, values: tuple[int, ...], epilogue: tuple[Step, ...]) -> Design:
    batch, block_in, block_out, h_threads, oc_threads, tile_h, tile_w = values
    try:
        geometry = replace(base, batch=batch, block_in=block_in, block_out=block_out)
    except TargetError as error:
        raise ConfigError(str(error)) from error
    schedule = Schedule(tile_h, tile_w, 1, 1, h_threads, oc_threads)
    check_schedule(w, schedule, geometry, epilogue)
    for axis, channels in (("tile_co", w.out_channels // block_out), ("tile_ci", w.in_channels // block_in)):
        for blocks in reversed(_divisors(channels)):
            larger = replace(schedule, **{axis: blocks})
            try:
                check_schedule(w, larger, geometry, epilogue)
            except ConfigError:
                continue
            schedule = larger
            break
    return Design(geometry, schedule)


def default_config(w: Conv2d, base: Geometry) -> Config:
    """Returns a config on `base` itself: whole rows if possible, as many as fit, and then two threads if possible.

    Raises:
        ConfigError: there is none.
    """
    space = conv2d_space(w, base, False)
    if space.valid_indices is None or not len(space.valid_indices):
        raise ConfigError("the accelerator cannot run it at all")
    columns = space.columns(vectors := space.vectors(space.valid_indices))
    threads = columns["h_threading"] * columns["oc_threading"]
    merit = columns["tile_w"] * 1e4 + columns["tile_h"] * 10 + (threads == 2)
    return space.config(vectors[int(np.argmax(merit))])


def _divisors(extent: int) -> tuple[int, ...]:
    return tuple(size for size in range(1, extent + 1) if extent % size == 0)
