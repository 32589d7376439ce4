"""Winograd convolution on CUDA: one function with three kernels, and intermediate results in global memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.shared import anchor
from anole.targets.shared.winograd import Filtering, minimal_filtering, transform_data, transform_product
from anole.task import Conv2d
from anole_cuda.templates import nest
from anole_cuda.templates.tiling import panel_width
from anole_cuda.templates.winograd_space import TAPS, THREADS, output_tiles


@dataclass(frozen=True)
class WinogradTemplate:
    """Convolution by minimal filtering of square tiles; see `winograd_space` for its knobs."""

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Return (points, points, panels, in, panel width)."""
        points, panel = output_tiles(workload, config).points, panel_width(config["tile_f"])
        return (points, points, workload.out_channels // panel, workload.in_channels, panel)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Transform HWIO weights in float64 and pack them into panels, each read by one block of threads."""
        transformed = _filtering(config).transform_weight(weight)
        panels = transformed.reshape(*transformed.shape[:3], -1, panel_width(config["tile_f"])).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(panels, dtype=weight.dtype)

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Convolve NHWC data with packed weights, as NHWC."""
        tiles, filtering = output_tiles(workload, config), _filtering(config)
        values = transform_data(workload, tiles, filtering, data)
        return transform_product(workload, tiles, filtering, _multiply(values, packed))

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nests."""
        sch = s_tir.Schedule(func)
        _schedule_output(sch, config["tile_size"])
        _schedule_product(sch, config)
        _schedule_data(sch)
        return anchor.scheduled(sch)


def _filtering(config: Config) -> Filtering:
    return minimal_filtering(config["tile_size"], TAPS)


def _multiply(data: te.Tensor, packed: te.Tensor) -> te.Tensor:
    """Return the products of all points, (points, points, tiles, out)."""
    points, _, tiles, channels = data.shape
    panels, panel = int(packed.shape[2]), int(packed.shape[4])
    rc = te.reduce_axis((0, channels), "rc")

    def element(a: Any, b: Any, tile: Any, f: Any) -> Any:
        return te.sum(data[a, b, tile, rc] * packed[a, b, f // panel, rc, f % panel], axis=rc)

    return te.compute((points, points, tiles, panels * panel), element, name="winograd_product")


def _schedule_data(sch: s_tir.Schedule) -> None:
    """Give each thread the data of one tile and channel; adjacent threads have adjacent channels."""
    a, b, tile, channel = sch.get_loops(sch.get_sblock("winograd_data"))
    sch.reorder(tile, channel, a, b)
    thread = _bind(sch, [tile, channel])
    _place_columns(sch, sch.get_sblock("winograd_data_columns"), sch.get_sblock("winograd_patch"), thread)
    _unroll(sch, [a, b])


def _schedule_product(sch: s_tir.Schedule, config: Config) -> None:
    """Schedule the matrix products of all points, each with the loop nest of a dense layer."""
    block = sch.get_sblock("winograd_product")
    out = sch.cache_write(block, 0, "local")
    a, b, tile, f, rc = sch.get_loops(block)
    outer, inner = sch.split(rc, config["tile_rc"])
    spatial = [(tile, [None, *config["tile_p"]]), (f, config["tile_f"])]
    runs = (config["tile_rc"][1], panel_width(config["tile_f"]))
    # An earlier kernel transforms the data.
    nest.schedule_product(sch, block, out, [a, b], spatial, [outer], [inner], runs, config, inline=False)


def _schedule_output(sch: s_tir.Schedule, size: int) -> None:
    """Give each thread one tile's outputs of one filter, and their epilogue; adjacent threads have adjacent filters."""
    block = anchor.find_anchor(sch)
    epilogue = anchor.join_epilogue(sch, block)
    n, y, x, f = sch.get_loops(epilogue)
    row, y_inner = sch.split(y, [None, size])
    column, x_inner = sch.split(x, [None, size])
    sch.reorder(n, row, column, f, y_inner, x_inner)
    thread = _bind(sch, [n, row, column, f])
    sch.compute_at(block, x_inner)
    columns = sch.get_sblock("winograd_output_columns")
    _place_columns(sch, columns, sch.cache_read(columns, 0, "local"), thread)
    _unroll(sch, [y_inner, x_inner])


def _place_columns(sch: s_tir.Schedule, columns: Any, source: Any, thread: Any) -> None:
    """Transform a tile along its first axis in registers, column by column, each just before its use."""
    sch.compute_at(columns, thread)
    row, column = sch.get_loops(columns)[-2:]
    sch.reorder(column, row)
    sch.compute_at(source, column)
    for block in (columns, source):
        sch.set_scope(block, 0, "local")
    _unroll(sch, [column, row, sch.get_loops(source)[-1]])


def _bind(sch: s_tir.Schedule, loops: list[Any]) -> Any:
    """Give every iteration of the loops its own thread; return the loop over the threads of a block."""
    block, thread = sch.split(sch.fuse(*loops), [None, THREADS])
    nest.bind(sch, {"blockIdx.x": block, "threadIdx.x": thread})
    return thread


def _unroll(sch: s_tir.Schedule, loops: list[Any]) -> None:
    for loop in loops:
        sch.unroll(loop)
