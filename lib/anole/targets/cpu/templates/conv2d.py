"""Direct convolution on the CPU: NHWC data, weights packed into register-wide panels."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.cpu.device.vector_unit import FLOAT_BYTES, VectorUnit
from anole.targets.cpu.templates import nest
from anole.targets.cpu.templates.conv2d_space import CACHE_LINE_BYTES, leaves_gaps
from anole.targets.cpu.templates.idle_steps import has_idle, skip_idle
from anole.targets.cpu.templates.prefetch import prefetch_next
from anole.targets.cpu.templates.tile_orders import tile_order
from anole.targets.shared import anchor
from anole.task import Conv2d

_LINE = CACHE_LINE_BYTES // FLOAT_BYTES


@dataclass(frozen=True)
class Conv2dTemplate:
    """Direct convolution; `conv2d_space` says what its knobs mean.

    The splits of a config may cover more filters, rows and columns than there are. The surplus is computed from zeros
    or from the last row or column, and discarded.
    """

    unit: VectorUnit

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Returns (panels, kernel height, kernel width, in, panel width)."""
        panel, channels = config["tile_f"][2], workload.in_channels // workload.groups
        return (prod(config["tile_f"][:2]), *workload.kernel, channels, panel)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns HWIO weights in whole panels, zero-padded."""
        panel = config["tile_f"][2]
        missing = prod(config["tile_f"]) - workload.out_channels
        padded = np.pad(weight, [(0, 0)] * 3 + [(0, missing)])
        panels = padded.reshape(*weight.shape[:3], -1, panel)
        return np.ascontiguousarray(panels.transpose(3, 0, 1, 2, 4))

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the convolution of NHWC data with packed weights, as NHWC."""
        w, (filters, rows, columns) = workload, (prod(config[f"tile_{axis}"]) for axis in "fyx")
        conv = anchor.convolve(w, data, packed, filters, columns, rows)
        if (filters, rows, columns) == (w.out_channels, w.out_height, w.out_width):
            return conv
        shape = (w.batch, w.out_height, w.out_width, w.out_channels)
        return te.compute(shape, lambda n, y, x, f: conv[n, y, x, f], name="crop")

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        n, y, x, f, rc, ry, rx = sch.get_loops(block)
        panel = config["tile_f"][2]
        lanes = self.unit.lanes_of(panel)

        f_parallel, f_tile, f_register, f_vector = sch.split(f, [*config["tile_f"][:2], panel // lanes, lanes])
        y_parallel, y_tile, y_register = sch.split(y, config["tile_y"])
        x_tile, x_register = sch.split(x, config["tile_x"])
        splits = [sch.split(axis, config[f"tile_{name}"]) for axis, name in ((rc, "rc"), (ry, "ry"), (rx, "rx"))]
        outer, inner = zip(*splits, strict=True)
        chunks = [f_parallel, y_parallel] if config["parallel_order"] == "fy" else [y_parallel, f_parallel]
        order = tile_order(config["tile_order"])
        tiles = [(f_tile, y_tile, x_tile)[axis] for axis in order]
        registers = [y_register, x_register, f_register]
        sch.reorder(n, *chunks, *tiles, *outer, *inner, *registers, f_vector)

        # Fuse the chunks first: afterwards the padding stands between them and the tiles.
        parallel = sch.fuse(n, *chunks)
        sch.reverse_compute_at(epilogue, tiles[-1], preserve_unit_loops=True)
        if leaves_gaps(workload) and config["pad_at"] != "inline":
            # An odd number of lines apart, the pixels share all sets of the cache.
            sch.storage_align(sch.get_sblock("pad"), 0, axis=2, factor=2 * _LINE, offset=_LINE)
        nest.place_padding(sch, config["pad_at"], parallel, self.unit.lanes)
        sch.parallel(parallel)
        nest.vectorize_epilogue(sch, epilogue, len(tiles) + 1, self.unit.lanes)
        sch.vectorize(f_vector)
        for loop in registers:
            sch.unroll(loop)
        if config["unroll_explicit"]:
            steps = config["tile_y"][2] * config["tile_x"][1] * (panel // lanes)
            nest.unroll_reduction(sch, inner, steps, config["auto_unroll_max_step"])
        sch.decompose_reduction(block, outer[0])
        func = anchor.scheduled(sch)
        if config.get("prefetch"):
            of_one_panel = [*tiles[order.index(0) + 1 :], *outer, inner[0]]
            func = prefetch_next(func, [sch.get(loop) for loop in of_one_panel], dimensions=5)
        return skip_idle(func, sch.get(inner[0]), workload) if has_idle(workload, config) else func
