"""The design space of a convolution: block, buffers, threads and tiles (DCOC, Table 2)."""

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
from anole_vta.templates.estimates import MappedConfigs, blocks_that_fit, describe_tiles, min_cycles, resource_limits

BLOCK = ("tile_b", "tile_ci", "tile_co")
"""The knobs of the GEMM block (batch x in x out): batch, input channels and output channels."""

BUFFERS = ("log_inp_buff_size", "log_wgt_buff_size", "log_acc_buff_size")
"""The knobs of the buffers, named as VTA's settings: binary logarithms of sizes in bytes."""

HARDWARE = (*BLOCK, *BUFFERS)
"""The knobs of the hardware agent."""

_SOFTWARE = ("h_threading", "oc_threading", "tile_h", "tile_w")

PROGRAM = (*BLOCK, *_SOFTWARE, "blocks_ci", "blocks_co")
"""The columns of `programs_of`, which determine a program on VTA."""

_SEARCHED_VALUES: Mapping[str, tuple[int, ...]] = {
    "tile_b": (1, 2, 4, 8),
    "tile_ci": (8, 16, 32, 64, 128),
    "tile_co": (8, 16, 32, 64, 128),
    "log_inp_buff_size": (13, 14, 15, 16, 17),
    "log_wgt_buff_size": (15, 16, 17, 18, 19),
    "log_acc_buff_size": (14, 15, 16, 17, 18),
}
"""The values of the hardware agent's knobs, in addition to the given accelerator's values."""

_THREADS = (1, 2)


@dataclass(frozen=True)
class Design:
    """The accelerator and the schedule that a config selects."""

    geometry: Geometry
    schedule: Schedule

    @property
    def program(self) -> tuple[object, ...]:
        """Everything that determines a convolution's program, without its epilogue, as `programs_of` for one config."""
        g = self.geometry
        fixed = (*g.block, g.uop_bytes, g.bus_bytes, g.burst_beats, g.queue_entries, g.variant)
        return (*fixed, g.inp_bytes if g.variant == "vta++" else None, self.schedule)


EPILOGUE: tuple[EpilogueStep, ...] = (Bias(), *SHIFT_AND_CLIP)
"""The epilogue of nearly every layer of a network."""


@cache
def conv2d_space(
    w: Conv2d, base: Geometry, bounds: Bounds | None = None, is_open: bool = False, frequency_hz: float = 1e8
) -> Space:
    """Return the search space of a convolution.

    The knobs by agent: hardware has the GEMM block, ``tile_b``, ``tile_ci`` and ``tile_co``, as in the
    paper, and the buffer sizes; scheduling has ``h_threading`` and ``oc_threading``; mapping has ``tile_h`` and
    ``tile_w``, rows and columns of a tile. `design_of` computes the blocks of channels in a tile from these.

    `base` is the accelerator; if bounds are given, its block and buffers are searched. An open space includes configs
    that the accelerator cannot run. The clock frequency converts a penalty to a speed.
    """
    knobs = [option_knob(name, values, agent="hardware") for name, values in _hardware(w, base, bounds, is_open)]
    knobs += [option_knob(name, _THREADS, agent="scheduling") for name in ("h_threading", "oc_threading")]
    for name, extent in (("tile_h", w.out_height), ("tile_w", w.out_width)):
        knobs.append(option_knob(name, divisors(extent), agent="mapping"))

    def speed(columns: Columns) -> NDArray[np.float64]:
        return frequency_hz / min_cycles(w, columns, tiles_of(w, base, columns)[1], base.bus_bytes)

    describe = partial(describe_tiles, w, base.bus_bytes)
    # Different sizes of searched buffers can yield the same program.
    programs = None if bounds is None else partial(programs_of, w, base)
    runs = Constraint("the accelerator cannot run it", lambda columns: tiles_of(w, base, columns)[1] > 0)
    space = partial(
        Space, knobs, [runs], describe, merit_is_speed=True, programs=programs, shared=BLOCK if bounds else ()
    )
    if bounds is None:
        constrained = space(merit=speed)
    elif bounds.penalty_form == "share":

        def kept_share(columns: Columns) -> NDArray[np.float64]:
            return np.maximum(0.0, 1.0 - _penalties(base, bounds, columns))

        constrained = space(discount=kept_share, merit=lambda columns: speed(columns) * kept_share(columns))
    else:
        unit = unit_speed(w, frequency_hz)

        def penalty(columns: Columns) -> NDArray[np.float64]:
            return unit * _penalties(base, bounds, columns)

        constrained = space(toll=penalty, merit=lambda columns: np.maximum(0.0, speed(columns) - penalty(columns)))
    return constrained.to_open() if is_open else constrained


def _penalties(base: Geometry, bounds: Bounds, columns: Columns) -> NDArray[np.float64]:
    """Return DCOC's penalty of n configs, shape (n,); 0 for invalid accelerators."""
    geometries, indices = _accelerators(base, columns)
    return np.array([0.0 if geometry is None else _penalty(bounds, geometry) for geometry in geometries])[indices]


def _hardware(w: Conv2d, base: Geometry, bounds: Bounds | None, is_open: bool) -> Iterator[tuple[str, list[int]]]:
    """Yield the knobs of the hardware agent with their values."""
    for name, value in hardware_config(base).items():
        options = _SEARCHED_VALUES[name] if bounds is not None else ()
        if name == "tile_b" and not is_open:
            options = tuple(batch for batch in options if w.batch % batch == 0)
        yield name, sorted({value, *options})


def design_of(
    w: Conv2d, base: Geometry, config: Mapping[str, Any], epilogue: tuple[EpilogueStep, ...] = EPILOGUE
) -> Design:
    """Return the design that a config selects.

    Channels are padded to full blocks. A tile has as many blocks of output channels as fit, then as many blocks of
    input channels.

    Raises:
        ConfigError: the accelerator cannot run the design; the message gives the reason.
    """
    geometry = geometry_of(base, config)
    columns = {name: np.array([value]) for name, value in {**hardware_config(geometry), **config}.items()}
    tile_ci, tile_co = (max(1, int(blocks[0])) for blocks in tiles_of(w, base, columns, epilogue))
    h_threads, oc_threads, tile_h, tile_w = (config[name] for name in _SOFTWARE)
    schedule = Schedule(tile_h, tile_w, tile_ci, tile_co, h_threads, oc_threads)
    check_schedule(pad_to_blocks(w, geometry), schedule, geometry, epilogue)
    return Design(geometry, schedule)


def tiles_of(
    w: Conv2d, base: Geometry, columns: Columns, epilogue: tuple[EpilogueStep, ...] = EPILOGUE
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the blocks of input and of output channels in the tiles of n configs, each of shape (n,).

    Both are 0 for configs that the accelerator cannot run.
    """
    geometries, indices = _accelerators(base, columns)
    limits = resource_limits(geometries)[indices]
    return blocks_that_fit(w, MappedConfigs(*limits.T, *(columns[name] for name in _SOFTWARE)), epilogue)


def programs_of(w: Conv2d, base: Geometry, columns: Columns) -> NDArray[np.int64]:
    """Return a row that identifies the program of each of n valid configs: the columns `PROGRAM`, shape (n, n_columns).

    A buffer's size limits the tiles, but does not appear in instructions. VTA++ has one more column, INP's size, as it
    shares micro-operations with equal encodings, which depend on INP's index width.
    """
    tile_ci, tile_co = tiles_of(w, base, columns)
    rows = [*(columns[name] for name in (*BLOCK, *_SOFTWARE)), tile_ci, tile_co]
    if base.variant == "vta++":
        rows.append(columns["log_inp_buff_size"])
    return np.stack(rows, axis=1)


def geometry_of(base: Geometry, config: Mapping[str, Any]) -> Geometry:
    """Return the geometry that a config selects; raise ConfigError if it is invalid.

    Missing knobs have the values of `base`, as in builds of older versions, whose configs have no buffer sizes.
    """
    selected = {**hardware_config(base), **config}
    try:
        return _geometry(base, tuple(selected[name] for name in HARDWARE))
    except TargetError as error:
        raise ConfigError(str(error)) from error


def hardware_config(geometry: Geometry) -> dict[str, int]:
    """Return the values of the hardware agent's knobs that select a geometry."""
    sizes_bytes = (geometry.inp_bytes, geometry.wgt_bytes, geometry.acc_bytes)
    return dict(zip(HARDWARE, (*geometry.block, *(size.bit_length() - 1 for size in sizes_bytes)), strict=True))


def pad_to_blocks(w: Conv2d, geometry: Geometry) -> Conv2d:
    """Return a convolution with channels padded to full blocks of an accelerator."""
    blocks_in, blocks_out = -(-w.in_channels // geometry.block_in), -(-w.out_channels // geometry.block_out)
    return replace(w, in_channels=blocks_in * geometry.block_in, out_channels=blocks_out * geometry.block_out)


def _geometry(base: Geometry, hardware: tuple[int, ...]) -> Geometry:
    batch, ci, co, *logs = hardware
    inp, wgt, acc = (1 << log for log in logs)
    return replace(base, batch=batch, block_in=ci, block_out=co, inp_bytes=inp, wgt_bytes=wgt, acc_bytes=acc)


@cache
def _geometry_cache(base: Geometry) -> dict[int, Geometry | None]:
    """Return the cache of `_accelerators`, by joined code; searches look the same geometries up repeatedly."""
    return {}


def _accelerators(base: Geometry, columns: Columns) -> tuple[list[Geometry | None], NDArray[np.int64]]:
    """Return the distinct geometries of n configs, None where invalid, and the index of each config's geometry."""
    keys = np.zeros(len(columns[HARDWARE[0]]), dtype=np.int64)
    for name in HARDWARE:
        keys = keys << (_LOG_BITS if name in BUFFERS else _BLOCK_BITS) | columns[name]
    codes, first, indices = np.unique(keys, return_index=True, return_inverse=True)
    cache_by_code = _geometry_cache(base)
    for code, at in zip(codes.tolist(), first.tolist(), strict=True):
        if code not in cache_by_code:
            cache_by_code[code] = None
            with suppress(TargetError):
                cache_by_code[code] = _geometry(base, tuple(int(columns[name][at]) for name in HARDWARE))
    return [cache_by_code[code] for code in codes.tolist()], indices


_BLOCK_BITS, _LOG_BITS = 14, 6
"""Bits of a block's extents, at most 4096, and of a buffer's logarithm; all together fit 64 bits."""


@cache
def _penalty(bounds: Bounds, geometry: Geometry) -> float:
    return bounds.penalty_of(geometry)


def can_run(lower: Callable[[], object]) -> bool:
    """Whether a lowering succeeds; it raises ConfigError if the accelerator cannot run the result."""
    try:
        lower()
    except ConfigError:
        return False
    return True


def default_config(w: Conv2d, base: Geometry) -> Config:
    """Return a config on `base`, with the widest tiles, then the most rows that fit, then two threads.

    Raise ConfigError if the accelerator cannot run the convolution at all.
    """
    space = conv2d_space(w, base)
    columns = space.columns(vectors := space.vectors(np.arange(space.size)))
    threads = columns["h_threading"] * columns["oc_threading"]
    merit = columns["tile_w"] * 1e4 + columns["tile_h"] * 10 + (threads == 2)
    merit[tiles_of(w, base, columns)[1] == 0] = -1
    best = int(np.argmax(merit))
    if merit[best] < 0:
        raise ConfigError("the accelerator cannot run this convolution with any config")
    return space.config(vectors[best])
