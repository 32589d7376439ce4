"""The common base of the CPU's direct, grouped and depthwise convolution templates: weight packing and tiling."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from numpy.typing import NDArray
from tvm import s_tir, tirx

from anole.record import Config
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.cpu.templates.conv2d_space import leaves_gaps
from anole.targets.cpu.templates.convolution_tiles import tile_order
from anole.targets.cpu.templates.nest import TiledNest
from anole.targets.cpu.templates.register_tiles import CACHE_LINE_BYTES
from anole.targets.shared import anchor
from anole.targets.shared.templates import pack_panels
from anole.task import Conv2d


@dataclass(frozen=True)
class ConvolutionTemplate:
    """A convolution template with weights in panels as wide as a register tile's filters."""

    unit: VectorUnit

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Return (panels, kernel height, kernel width, channels of a group, panel width)."""
        channels = workload.in_channels // workload.groups
        return (prod(config["tile_f"][:2]), *workload.kernel, channels, config["tile_f"][2])

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Pack HWIO weights into panels, zero-padded."""
        return pack_panels(weight, config["tile_f"][2], prod(config["tile_f"]))

    def tile(self, func: tirx.PrimFunc, config: Config, lanes: int) -> TiledNest:
        """Split the loops of a function's anchor, with vectors of `lanes` lanes.

        Tile loops are over filters, rows and columns in the config's order, register loops over rows, columns, vectors.
        """
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        n, y, x, f, *reduction = sch.get_loops(block)
        vectors = config["tile_f"][2] // lanes
        f_parallel, f_tile, f_register, vector = sch.split(f, [*config["tile_f"][:2], vectors, lanes])
        y_parallel, y_tile, y_register = sch.split(y, config["tile_y"])
        x_tile, x_register = sch.split(x, config["tile_x"])
        chunks = [f_parallel, y_parallel] if config.get("parallel_order", "fy") == "fy" else [y_parallel, f_parallel]
        tiles = [(f_tile, y_tile, x_tile)[axis] for axis in tile_order(config["tile_order"])]
        registers = [y_register, x_register, f_register]
        steps = config["tile_y"][2] * config["tile_x"][1] * vectors
        return TiledNest(sch, block, epilogue, [n, *chunks], tiles, reduction, registers, vector, steps)


def separate_pixels(sch: s_tir.Schedule, w: Conv2d, config: Config) -> None:
    """Place the pixels of a padded copy an odd number of cache lines apart, to use all sets of the cache."""
    line = CACHE_LINE_BYTES // FLOAT_BYTES
    if leaves_gaps(w) and config["pad_at"] != "inline":
        sch.storage_align(sch.get_sblock("pad"), 0, axis=2, factor=2 * line, offset=line)
