"""Depthwise convolution on the CPU: NHWC data, vectors of neighbouring channels, a tile of pixels in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates import nest
from anole.targets.cpu.templates.depthwise_space import channel_lanes
from anole.targets.cpu.templates.tile_orders import tile_order
from anole.targets.shared import anchor
from anole.task import Conv2d


@dataclass(frozen=True)
class DepthwiseTemplate:
    """Depthwise convolution; `depthwise_space` says what its knobs mean."""

    unit: VectorUnit

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Returns (panels, kernel height, kernel width, panel width)."""
        panel = config["tile_f"][2]
        return (workload.out_channels // panel, *workload.kernel, panel)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns HWIO weights, of one input channel each, in panels."""
        panels = weight[:, :, 0, :].reshape(*workload.kernel, -1, config["tile_f"][2])
        return np.array(panels.transpose(2, 0, 1, 3), order="C")

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the convolution of NHWC data with packed weights, as NHWC."""
        w, panel, filters = workload, config["tile_f"][2], workload.out_channels // workload.in_channels
        padded = anchor.pad(w, data) if any(w.padding) else data
        ry = te.reduce_axis((0, w.kernel[0]), "ry")
        rx = te.reduce_axis((0, w.kernel[1]), "rx")

        def point(n: Any, y: Any, x: Any, f: Any) -> Any:
            row, column = y * w.strides[0] + ry * w.dilation[0], x * w.strides[1] + rx * w.dilation[1]
            channel = f if filters == 1 else f // filters
            return te.sum(padded[n, row, column, channel] * packed[f // panel, ry, rx, f % panel], axis=[ry, rx])

        shape = (w.batch, w.out_height, w.out_width, w.out_channels)
        return te.compute(shape, point, name="depthwise", attrs={ANCHOR: w.operator})

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        n, y, x, f, ry, rx = sch.get_loops(block)
        panel = config["tile_f"][2]
        lanes = channel_lanes(self.unit, workload)

        f_parallel, f_tile, f_register, f_vector = sch.split(f, [*config["tile_f"][:2], panel // lanes, lanes])
        y_parallel, y_tile, y_register = sch.split(y, config["tile_y"])
        x_tile, x_register = sch.split(x, config["tile_x"])
        tiles = [(f_tile, y_tile, x_tile)[axis] for axis in tile_order(config["tile_order"])]
        registers = [y_register, x_register, f_register]
        sch.reorder(n, f_parallel, y_parallel, *tiles, ry, rx, *registers, f_vector)

        parallel = sch.fuse(n, f_parallel, y_parallel)
        sch.reverse_compute_at(epilogue, tiles[-1], preserve_unit_loops=True)
        nest.place_padding(sch, config["pad_at"], parallel, self.unit.lanes)
        sch.parallel(parallel)
        nest.vectorize_epilogue(sch, epilogue, len(tiles) + 1, lanes)
        sch.vectorize(f_vector)
        for loop in registers:
            sch.unroll(loop)
        steps = config["tile_y"][2] * config["tile_x"][1] * (panel // lanes)
        nest.unroll_reduction(sch, [ry, rx], steps, config["auto_unroll_max_step"])
        sch.decompose_reduction(block, ry)
        return anchor.scheduled(sch)
