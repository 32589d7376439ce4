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
from anole.targets.vta.area import Bounds
from anole.targets.vta.geometry import Geometry
from anole.targets.vta.templates.conv2d import SHIFT_AND_CLIP, Bias, EpilogueStep, Schedule, check_schedule
from anole.task import Conv2d

_BATCHES = (1, 2, 4, 8)
_BLOCKS = (8, 16, 32, 64, 128)
_THREADS = (1, 2)


@dataclass(frozen=True)
class Design:
    """The accelerator and the schedule that a config stands for.

    Attributes:
        geometry: geometry of the accelerator.
        schedule: schedule of the convolution on it.
    """

    geometry: Geometry
    schedule: Schedule


EPILOGUE: tuple[EpilogueStep, ...] = (Bias(), *SHIFT_AND_CLIP)
"""The epilogue of nearly every layer of a network."""


@cache
def conv2d_space(w: Conv2d, base: Geometry, bounds: Bounds | None = None) -> Space:
    """Returns the space of a convolution.

    Knobs, with the paper's names: the hardware agent has ``tile_b``, ``tile_ci`` and ``tile_co``, the block's batch,
    input and output channels; the scheduling agent has ``h_threading`` and ``oc_threading``; the mapping agent has
    ``tile_h`` and ``tile_w``, rows and columns of one tile. A rule (`design_of`) decides how many blocks of channels a
    tile has.

    Args:
        w: the convolution.
        base: the accelerator; if its block is searched, everything except the block.
        bounds: bounds on a searched block; if None, the block of `base` is fixed.
    """
    block = (base.batch, base.block_in, base.block_out)
    choices = (_BATCHES, _BLOCKS, _BLOCKS) if bounds is not None else ((), (), ())
    knobs = [
        *(
            option_knob(name, sorted({own, *others}), agent="hardware")
            for name, own, others in zip(HARDWARE, block, choices, strict=True)
        ),
        option_knob("h_threading", _THREADS, agent="scheduling"),
        option_knob("oc_threading", _THREADS, agent="scheduling"),
        option_knob("tile_h", _divisors(w.out_height), agent="mapping"),
        option_knob("tile_w", _divisors(w.out_width), agent="mapping"),
    ]

    def can_be_lowered(columns: Columns) -> NDArray[np.bool_]:
        rows = zip(*(columns[name].tolist() for name in _KNOBS), strict=True)
        return np.array([_is_possible(w, base, row) for row in rows], dtype=bool)

    def discount(columns: Columns) -> NDArray[np.float64]:
        blocks = zip(*(columns[name].tolist() for name in HARDWARE), strict=True)
        return np.array([_discount(base, bounds or Bounds(), block) for block in blocks])

    constraint = Constraint("the accelerator cannot run it so", can_be_lowered)
    return Space(knobs, [constraint], discount=discount if bounds is not None else None)


def design_of(
    w: Conv2d, base: Geometry, config: Mapping[str, Any], epilogue: tuple[EpilogueStep, ...] = EPILOGUE
) -> Design:
    """Returns the design that a config stands for.

    Channels are padded to whole blocks. Tiles have as many blocks of output channels as fit, and then as many blocks of
    input channels as fit.

    Raises:
        ConfigError: the accelerator cannot run it; the message gives the reason.
    """
    return _design(w, base, tuple(config[name] for name in _KNOBS), epilogue)


HARDWARE = ("tile_b", "tile_ci", "tile_co")
"""The knobs of the hardware agent: batch, input and output channels of the accelerator's block."""

_KNOBS = (*HARDWARE, "h_threading", "oc_threading", "tile_h", "tile_w")


def geometry_of(base: Geometry, config: Mapping[str, Any]) -> Geometry:
    """Returns the geometry that a config asks for.

    Raises:
        ConfigError: no such geometry is possible.
    """
    return _with_block(base, tuple(config[name] for name in HARDWARE))


def whole_blocks(w: Conv2d, geometry: Geometry) -> Conv2d:
    """Returns a convolution with its channels padded to whole blocks of an accelerator."""
    whole_in, whole_out = -(-w.in_channels // geometry.block_in), -(-w.out_channels // geometry.block_out)
    return replace(w, in_channels=whole_in * geometry.block_in, out_channels=whole_out * geometry.block_out)


def _with_block(base: Geometry, block: tuple[int, ...]) -> Geometry:
    batch, block_in, block_out = block
    try:
        return replace(base, batch=batch, block_in=block_in, block_out=block_out)
    except TargetError as error:
        raise ConfigError(str(error)) from error


@cache
def _discount(base: Geometry, bounds: Bounds, block: tuple[int, ...]) -> float:
    """Returns the share of its speed that a block is credited with: DCOC's penalty, in units of the speed itself."""
    try:
        return max(0.0, 1.0 - bounds.penalty_of(_with_block(base, block)))
    except ConfigError:
        return 0.0


@cache
def _is_possible(w: Conv2d, base: Geometry, values: tuple[int, ...]) -> bool:
    try:
        _design(w, base, values, EPILOGUE)
    except ConfigError:
        return False
    return True


def _design(w: Conv2d, base: Geometry, values: tuple[int, ...], epilogue: tuple[EpilogueStep, ...]) -> Design:
    geometry = _with_block(base, values[: len(HARDWARE)])
    h_threads, oc_threads, tile_h, tile_w = values[len(HARDWARE) :]
    w = whole_blocks(w, geometry)
    schedule = Schedule(tile_h, tile_w, 1, 1, h_threads, oc_threads)
    check_schedule(w, schedule, geometry, epilogue)
    blocks_ci, blocks_co = w.in_channels // geometry.block_in, w.out_channels // geometry.block_out
    for axis, channels in (("tile_co", blocks_co), ("tile_ci", blocks_ci)):
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
    """Returns a config on `base` itself: whole rows if possible, as many as fit, and two threads if possible.

    Raises:
        ConfigError: the accelerator cannot run the convolution at all.
    """
    space = conv2d_space(w, base)
    columns = space.columns(vectors := space.vectors(np.arange(space.size)))
    threads = columns["h_threading"] * columns["oc_threading"]
    merit = columns["tile_w"] * 1e4 + columns["tile_h"] * 10 + (threads == 2)
    for vector in vectors[np.argsort(-merit, kind="stable")]:
        config = space.config(vector)
        if _is_possible(w, base, tuple(config[name] for name in _KNOBS)):
            return config
    raise ConfigError("the accelerator cannot run it at all")


def _divisors(extent: int) -> tuple[int, ...]:
    return tuple(size for size in range(1, extent + 1) if extent % size == 0)
