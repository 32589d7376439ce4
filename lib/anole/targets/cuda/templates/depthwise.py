"""Depthwise convolution on CUDA: NHWC data, one kernel for each channel, both staged once in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.cuda.templates import nest
from anole.targets.shared import anchor
from anole.task import Conv2d


@dataclass(frozen=True)
class DepthwiseTemplate:
    """Depthwise convolution; `depthwise_space` says what its knobs mean."""

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Returns (kernel height, kernel width, channels)."""
        return (*workload.kernel, workload.out_channels)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns HWIO weights, in which neighbouring channels are already contiguous."""
        return np.ascontiguousarray(weight[:, :, 0, :])

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the convolution of NHWC data with packed weights, as NHWC."""
        w = workload
        padded = anchor.pad(w, data)
        ry = te.reduce_axis((0, w.kernel[0]), "ry")
        rx = te.reduce_axis((0, w.kernel[1]), "rx")

        def point(n: Any, y: Any, x: Any, f: Any) -> Any:
            row, column = y * w.strides[0] + ry * w.dilation[0], x * w.strides[1] + rx * w.dilation[1]
            return te.sum(padded[n, row, column, f] * packed[ry, rx, f], axis=[ry, rx])

        shape = (w.batch, w.out_height, w.out_width, w.out_channels)
        return te.compute(shape, point, name="depthwise", attrs={ANCHOR: w.operator})

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        n, y, x, f, ry, rx = sch.get_loops(block)
        spatial = [(y, config["tile_y"]), (x, config["tile_x"]), (f, config["tile_f"])]
        tiles = nest.bind_tiles(sch, [n], spatial, [], [ry, rx])
        channels = prod(config["tile_f"][1:])
        for read in (0, 1):
            nest.stage(sch, block, read, tiles.threads[-1], tiles.extents, channels)
        nest.place_epilogue(sch, epilogue, tiles.threads[-1])
        nest.unroll(sch, tiles.grid, config)
        sch.decompose_reduction(block, ry)
        return anchor.scheduled(sch)
