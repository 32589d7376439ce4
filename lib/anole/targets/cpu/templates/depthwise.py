"""Depthwise convolution on the CPU: NHWC data, vectors of neighbouring channels, a tile of pixels in registers."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from tvm import te, tirx

from anole.record import Config
from anole.targets.cpu.templates.convolution import ConvolutionTemplate
from anole.targets.cpu.templates.depthwise_space import channel_lanes
from anole.targets.shared import anchor
from anole.task import Conv2d


class DepthwiseTemplate(ConvolutionTemplate):
    """Depthwise convolution; `depthwise_space` says what its knobs mean."""

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Returns (panels, kernel height, kernel width, panel width)."""
        panels, height, width, _, panel = super().packed_shape(workload, config)
        return (panels, height, width, panel)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns HWIO weights, of one input channel each, in panels."""
        return super().pack_weight(workload, config, weight[:, :, 0, :])

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the convolution of NHWC data with packed weights, as NHWC."""
        size = (workload.out_height, workload.out_width, workload.out_channels)
        return anchor.convolve(workload, anchor.pad(workload, data), packed, size, "depthwise")

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        lanes = channel_lanes(self.unit, workload)
        tiled = self.tiled(func, config, lanes)
        tiled.arrange("pad", config["pad_at"], self.unit.lanes, lanes)
        return tiled.finish(tiled.reduction, config["auto_unroll_max_step"])
