"""Direct and depthwise convolution on CUDA: NHWC data and packed weights, both staged in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.shared import anchor
from anole.targets.shared.templates import pack_panels
from anole.task import Conv2d
from anole_cuda.templates import nest
from anole_cuda.templates.tiling import panel_width


@dataclass(frozen=True)
class Conv2dTemplate:
    """Direct convolution with any number of groups; see `conv2d_space` for its knobs."""

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Return (panels, kernel height, kernel width, in, panel width)."""
        panel, channels = panel_width(config["tile_f"]), workload.in_channels // workload.groups
        return (workload.out_channels // panel, *workload.kernel, channels, panel)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Pack HWIO weights into panels, each read by one block of threads."""
        return pack_panels(weight, panel_width(config["tile_f"]))

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Convolve NHWC data with packed weights, as NHWC."""
        size = (workload.out_height, workload.out_width, workload.out_channels)
        return anchor.convolve(workload, anchor.pad(workload, data), packed, size)

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        n, y, x, filters, rc, ry, rx = sch.get_loops(block)
        group, f = sch.split(filters, [workload.groups, None])
        splits = [sch.split(axis, config[f"tile_{name}"]) for axis, name in ((rc, "rc"), (ry, "ry"), (rx, "rx"))]
        outer, inner = zip(*splits, strict=True)
        spatial = [(y, config["tile_y"]), (x, config["tile_x"]), (f, config["tile_f"])]
        runs = (config["tile_rc"][1], panel_width(config["tile_f"]))
        nest.schedule_product(sch, block, epilogue, [n, group], spatial, outer, inner, runs, config)
        return anchor.scheduled(sch)


@dataclass(frozen=True)
class DepthwiseTemplate:
    """Depthwise convolution; see `conv2d_space` for its knobs."""

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Return (kernel height, kernel width, channels)."""
        return (*workload.kernel, workload.out_channels)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Return HWIO weights without the input axis; adjacent channels are already contiguous."""
        return np.ascontiguousarray(weight[:, :, 0, :])

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Convolve NHWC data with packed weights, as NHWC."""
        w = workload
        padded = anchor.pad(w, data)
        ry = te.reduce_axis((0, w.kernel[0]), "ry")
        rx = te.reduce_axis((0, w.kernel[1]), "rx")

        def element(n: Any, y: Any, x: Any, f: Any) -> Any:
            row, column = y * w.strides[0] + ry * w.dilation[0], x * w.strides[1] + rx * w.dilation[1]
            return te.sum(padded[n, row, column, f] * packed[ry, rx, f], axis=[ry, rx])

        shape = (w.batch, w.out_height, w.out_width, w.out_channels)
        return te.compute(shape, element, name="depthwise", attrs={ANCHOR: w.operator})

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        n, y, x, f, ry, rx = sch.get_loops(block)
        spatial = [(y, config["tile_y"]), (x, config["tile_x"]), (f, config["tile_f"])]
        runs = (panel_width(config["tile_f"]),) * 2
        nest.schedule_product(sch, block, epilogue, [n], spatial, [], [ry, rx], runs, config)
        return anchor.scheduled(sch)
