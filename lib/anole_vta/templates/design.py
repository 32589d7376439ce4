"""The design space of a convolution: the accelerator's block, its threads and its tiles (DCOC, Table 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.errors import ConfigError, TargetError
from anole.record import Config
from anole.space import Constraint, Space, option_knob
from anole.space.knob import divisors
from anole.space.space import Columns
from anole.task import Conv2d
from anole_vta.area import Bounds, unit_speed
from anole_vta.geometry import Geometry
from anole_vta.templates.conv2d import SHIFT_AND_CLIP, Bias, EpilogueStep, Schedule, check_schedule
from anole_vta.templates.estimates import Mapped, blocks_that_fit, limits_of, min_cycles

BLOCK = ("tile_b", "tile_ci", "tile_co")
"""The knobs of the accelerator's block: batch, input and output channels."""

BUFFERS = ("log_inp_buff_size", "log_wgt_buff_size", "log_acc_buff_size")
"""The knobs of the buffers, with the names of VTA's settings: binary logarithms of their sizes in bytes."""

HARDWARE = (*BLOCK, *BUFFERS)
"""The knobs of the hardware agent."""

_SOFTWARE = ("h_threading", "oc_threading", "tile_h", "tile_w")

PROGRAM = (*BLOCK, *_SOFTWARE, "blocks_ci", "blocks_co")
"""What determines a program on VTA: the columns of `programs_of`."""

_SEARCHED: Mapping[str, tuple[int, ...]] = {
    "tile_b": (1, 2, 4, 8),
    "tile_ci": (8, 16, 32, 64, 128),
    "tile_co": (8, 16, 32, 64, 128),
    "log_inp_buff_size": (13, 14, 15, 16, 17),
    "log_wgt_buff_size": (15, 16, 17, 18, 19),
    "log_acc_buff_size": (14, 15, 16, 17, 18),
}
"""The values of the hardware agent's knobs, beside those of the given accelerator."""

_THREADS = (1, 2)


@dataclass(frozen=True)
class Design:
    """The accelerator and the schedule that a config stands for."""

    geometry: Geometry
    schedule: Schedule

    @property
    def program(self) -> tuple[object, ...]:
        """What determines the program of a convolution beside its epilogue, as `programs_of` says it of many."""
        g = self.geometry
        own = (*g.block, g.uop_bytes, g.bus_bytes, g.burst_beats, g.queue_entries, g.variant)
        return (*own, g.inp_bytes if g.variant == "vta++" else None, self.schedule)


EPILOGUE: tuple[EpilogueStep, ...] = (Bias(), *SHIFT_AND_CLIP)
"""The epilogue of nearly every layer of a network."""


@cache
def conv2d_space(
    w: Conv2d, base: Geometry, bounds: Bounds | None = None, is_open: bool = False, frequency_hz: float = 1e8
) -> Space:
    """Return the space of a convolution.

    The hardware agent has the block of the matrix unit, ``tile_b``, ``tile_ci`` and ``tile_co``, as in the paper, and
    the sizes of the buffers; the scheduling agent has ``h_threading`` and ``oc_threading``; the mapping agent has
    ``tile_h`` and ``tile_w``, rows and columns of one tile. A rule (`design_of`) decides how many blocks of channels a
    tile has.

    `base` is the accelerator; where bounds say that it is searched, it is all of it but the block and the buffers. An
    open space also holds what the accelerator cannot run. The clock's frequency converts a penalty to a speed.
    """
    knobs = [option_knob(name, values, agent="hardware") for name, values in _hardware(w, base, bounds, is_open)]
    knobs += [option_knob(name, _THREADS, agent="scheduling") for name in ("h_threading", "oc_threading")]
    for name, extent in (("tile_h", w.out_height), ("tile_w", w.out_width)):
        knobs.append(option_knob(name, divisors(extent), agent="mapping"))

    def speed(columns: Columns) -> NDArray[np.float64]:
        return frequency_hz / min_cycles(w, columns, tiles_of(w, base, columns)[1], base.bus_bytes)

    # Buffers that are searched have sizes that make no difference.
    programs = None if bounds is None else partial(programs_of, w, base)
    runs = Constraint("the accelerator cannot run it so", lambda columns: tiles_of(w, base, columns)[1] > 0)
    space = partial(Space, knobs, [runs], merit_is_speed=True, programs=programs)
    if bounds is None:
        constrained = space(merit=speed)
    elif bounds.penalty_form == "share":

        def kept(columns: Columns) -> NDArray[np.float64]:
            return np.maximum(0.0, 1.0 - _penalties(base, bounds, columns))

        constrained = space(discount=kept, merit=lambda columns: speed(columns) * kept(columns))
    else:
        unit = unit_speed(w, frequency_hz)

        def lost(columns: Columns) -> NDArray[np.float64]:
            return unit * _penalties(base, bounds, columns)

        constrained = space(toll=lost, merit=lambda columns: np.maximum(0.0, speed(columns) - lost(columns)))
    return constrained.opened() if is_open else constrained


def _penalties(base: Geometry, bounds: Bounds, columns: Columns) -> NDArray[np.float64]:
    """Return DCOC's penalty of n configs, shape (n,); 0 for accelerators that are impossible."""
    geometries, of_each = _accelerators(base, columns)
    return np.array([0.0 if each is None else _penalty(bounds, each) for each in geometries])[of_each]


def _hardware(w: Conv2d, base: Geometry, bounds: Bounds | None, is_open: bool) -> Iterator[tuple[str, list[int]]]:
    """Yield the knobs of the hardware agent with their values."""
    for name, own in hardware_config(base).items():
        others = _SEARCHED[name] if bounds is not None else ()
        if name == "tile_b" and not is_open:
            others = tuple(batch for batch in others if w.batch % batch == 0)
        yield name, sorted({own, *others})


def design_of(
    w: Conv2d, base: Geometry, config: Mapping[str, Any], epilogue: tuple[EpilogueStep, ...] = EPILOGUE
) -> Design:
    """Return the design that a config stands for.

    Channels are padded to whole blocks. Tiles have as many blocks of output channels as fit, and then as many blocks of
    input channels as fit.

    Raises:
        ConfigError: the accelerator cannot run it; the message gives the reason.
    """
    geometry = geometry_of(base, config)
    columns = {name: np.array([value]) for name, value in {**hardware_config(geometry), **config}.items()}
    tile_ci, tile_co = (max(1, int(blocks[0])) for blocks in tiles_of(w, base, columns, epilogue))
    h_threads, oc_threads, tile_h, tile_w = (config[name] for name in _SOFTWARE)
    schedule = Schedule(tile_h, tile_w, tile_ci, tile_co, h_threads, oc_threads)
    check_schedule(whole_blocks(w, geometry), schedule, geometry, epilogue)
    return Design(geometry, schedule)


def tiles_of(
    w: Conv2d, base: Geometry, columns: Columns, epilogue: tuple[EpilogueStep, ...] = EPILOGUE
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the blocks of input and of output channels of the tiles of n configs, each of shape (n,).

    Both are 0 where the accelerator cannot run it.
    """
    geometries, of_each = _accelerators(base, columns)
    limits = limits_of(geometries)[of_each]
    return blocks_that_fit(w, Mapped(*limits.T, *(columns[name] for name in _SOFTWARE)), epilogue)


def programs_of(w: Conv2d, base: Geometry, columns: Columns) -> NDArray[np.int64]:
    """Return what determines the programs of n configs that can be run: the columns `PROGRAM`, shape (n, n_columns).

    Configs with equal rows have equal programs: a buffer's size limits the tiles, and appears in no instruction. Only
    VTA++ has a column more, INP's size: it shares micro-operations with equal encodings, which depend on that.
    """
    tile_ci, tile_co = tiles_of(w, base, columns)
    rows = [*(columns[name] for name in (*BLOCK, *_SOFTWARE)), tile_ci, tile_co]
    if base.variant == "vta++":
        rows.append(columns["log_inp_buff_size"])
    return np.stack(rows, axis=1)


def geometry_of(base: Geometry, config: Mapping[str, Any]) -> Geometry:
    """Return the geometry that a config asks for; raises ConfigError if it is not possible.

    Where the config has no such knob, it is that of `base`: builds of older versions have configs without buffers.
    """
    asked = {**hardware_config(base), **config}
    try:
        return _geometry(base, tuple(asked[name] for name in HARDWARE))
    except TargetError as error:
        raise ConfigError(str(error)) from error


def hardware_config(geometry: Geometry) -> dict[str, int]:
    """Return the values of the hardware agent's knobs that ask for a geometry."""
    sizes_bytes = (geometry.inp_bytes, geometry.wgt_bytes, geometry.acc_bytes)
    return dict(zip(HARDWARE, (*geometry.block, *(size.bit_length() - 1 for size in sizes_bytes)), strict=True))


def whole_blocks(w: Conv2d, geometry: Geometry) -> Conv2d:
    """Return a convolution with its channels padded to whole blocks of an accelerator."""
    whole_in, whole_out = -(-w.in_channels // geometry.block_in), -(-w.out_channels // geometry.block_out)
    return replace(w, in_channels=whole_in * geometry.block_in, out_channels=whole_out * geometry.block_out)


def _geometry(base: Geometry, hardware: tuple[int, ...]) -> Geometry:
    batch, ci, co, *logs = hardware
    inp, wgt, acc = (1 << log for log in logs)
    return replace(base, batch=batch, block_in=ci, block_out=co, inp_bytes=inp, wgt_bytes=wgt, acc_bytes=acc)


@cache
def _known(base: Geometry) -> dict[int, Geometry | None]:
    """Return what `_accelerators` has found so far, by code: the search's walks ask for it again and again."""
    return {}


def _accelerators(base: Geometry, columns: Columns) -> tuple[list[Geometry | None], NDArray[np.int64]]:
    """Return the distinct geometries that n configs ask for, None where impossible, and which each config has."""
    joined = np.zeros(len(columns[HARDWARE[0]]), dtype=np.int64)
    for name in HARDWARE:
        joined = joined << (_LOG_BITS if name in BUFFERS else _BLOCK_BITS) | columns[name]
    codes, first, of_each = np.unique(joined, return_index=True, return_inverse=True)
    known = _known(base)
    for code, at in zip(codes.tolist(), first.tolist(), strict=True):
        if code not in known:
            known[code] = None
            with suppress(TargetError):
                known[code] = _geometry(base, tuple(int(columns[name][at]) for name in HARDWARE))
    return [known[code] for code in codes.tolist()], of_each


_BLOCK_BITS, _LOG_BITS = 14, 6
"""Bits of a block's extents, which are at most 4096, and of a buffer's logarithm; all of them fit one word."""


@cache
def _penalty(bounds: Bounds, geometry: Geometry) -> float:
    return bounds.penalty_of(geometry)


def can_run(lower: Callable[[], object]) -> bool:
    """Whether the accelerator can run what a function lowers; otherwise, that raises ConfigError."""
    try:
        lower()
    except ConfigError:
        return False
    return True


def default_config(w: Conv2d, base: Geometry) -> Config:
    """Return a config on `base` itself: whole rows if possible, as many as fit, and two threads if possible.

    If the accelerator cannot run the convolution at all, this raises ConfigError.
    """
    space = conv2d_space(w, base)
    columns = space.columns(vectors := space.vectors(np.arange(space.size)))
    threads = columns["h_threading"] * columns["oc_threading"]
    merit = columns["tile_w"] * 1e4 + columns["tile_h"] * 10 + (threads == 2)
    merit[tiles_of(w, base, columns)[1] == 0] = -1
    best = int(np.argmax(merit))
    if merit[best] < 0:
        raise ConfigError("the accelerator cannot run it at all")
    return space.config(vectors[best])
