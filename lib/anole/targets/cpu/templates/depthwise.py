"""Depthwise convolution on the CPU: NHWC data, vectors of adjacent channels, a tile of pixels in registers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.ir.nodes import collect, with_loop, with_values
from anole.record import Config
from anole.targets.cpu.templates.convolution import ConvolutionTemplate, separate_pixels
from anole.targets.cpu.templates.depthwise_space import panel_lanes
from anole.targets.shared import anchor
from anole.task import Conv2d


class DepthwiseTemplate(ConvolutionTemplate):
    """Depthwise convolution; see `depthwise_space` for its knobs."""

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Return (panels, kernel height, kernel width, panel width)."""
        panels, height, width, _, panel = super().packed_shape(workload, config)
        return (panels, height, width, panel)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Pack HWIO weights with one input channel per filter into panels."""
        return super().pack_weight(workload, config, weight[:, :, 0, :])

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Convolve NHWC data with packed weights, as NHWC."""
        w, (rows, columns, filters) = workload, (prod(config[f"tile_{axis}"]) for axis in "yxf")
        channels = -(-filters * w.in_channels // w.out_channels)
        conv = anchor.convolve(w, anchor.pad(w, data, channels), packed, (rows, columns, filters), "depthwise")
        return anchor.crop(conv, w.batch, w.out_height, w.out_width, w.out_channels)

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        lanes = int(panel_lanes(self.unit, workload, np.array([config["tile_f"][2]]))[0])
        tiled = self.tile(func, config, lanes)
        has_surplus = prod(config["tile_f"]) > workload.out_channels
        separate_pixels(tiled.sch, workload, config)
        tiled.arrange("pad", config["pad_at"], 0 if has_surplus else self.unit.lanes, lanes)
        func = tiled.finish(tiled.reduction, config["auto_unroll_max_step"])
        copy = anchor.find_block(tiled.sch, "pad") if has_surplus else None
        return func if copy is None else _without_surplus(func, tiled.sch.get(tiled.sch.get_loops(copy)[-1]), workload)


def _without_surplus(func: tirx.PrimFunc, loop: tirx.For, w: Conv2d) -> tirx.PrimFunc:
    """End the loop that copies channels at the last channel.

    Surplus lanes then compute on uninitialized memory, and their results are discarded.
    """
    (realize,) = collect(loop, s_tir.SBlockRealize)
    first = with_values(realize.iter_values[-1], {loop.loop_var: tirx.IntImm(loop.loop_var.ty.dtype, 0)})
    extent = tirx.min(loop.extent, w.in_channels - first)
    return with_loop(func, loop, lambda copy: tirx.For(copy.loop_var, copy.min, extent, copy.kind, copy.body))
