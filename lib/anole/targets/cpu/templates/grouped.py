"""Grouped convolution on the CPU: NHWC data, vectors over the filters of neighbouring groups."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from anole.record import Config
from anole.targets.cpu.templates import nest
from anole.targets.cpu.templates.convolution import ConvolutionTemplate, TiledConvolution
from anole.targets.cpu.templates.grouped_space import Bundle, n_bundles
from anole.targets.cpu.templates.lanes import join_groups
from anole.targets.shared import anchor
from anole.task import Conv2d


class GroupedTemplate(ConvolutionTemplate):
    """Grouped convolution with few filters per group; `grouped_space` says what its knobs mean."""

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the convolution of NHWC data with packed weights, as NHWC."""
        w, bundle = workload, Bundle.of(self.unit, workload)
        channels, filters = (n_bundles(self.unit, w) * each for each in (bundle.channels, bundle.filters))

        def first_channel(f: Any) -> Any:
            group = tirx.min(f % bundle.filters // bundle.group_filters, bundle.groups - 1)
            return f // bundle.filters * bundle.channels + group * bundle.group_channels

        size = (w.out_height, w.out_width, filters)
        conv = anchor.convolve(w, anchor.pad(w, data, channels), packed, size, "grouped", first_channel)
        return anchor.crop(conv, w.batch, w.out_height, w.out_width, w.out_channels)

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        bundle, tiled = Bundle.of(self.unit, workload), TiledConvolution.of(func, config, self.unit.lanes)
        rc, ry, rx = tiled.reduction
        rows, columns, vectors = tiled.registers
        register = {"f": [vectors], "p": [rows, columns], "r": [rx]}
        registers = [loop for name in config["register_order"] for loop in register[name]]
        reduction = [ry, rc] if bundle.is_shuffled else [rc, ry]
        tiled.arrange(config, reduction, registers, self.unit, self.unit.lanes)
        if bundle.is_shuffled:
            tiled.sch.unroll(rc)
        steps = tiled.steps * workload.kernel[1]
        nest.unroll_reduction(tiled.sch, reduction, steps, config["auto_unroll_max_step"])
        tiled.sch.decompose_reduction(tiled.block, reduction[0])
        vector = tiled.sch.get(tiled.sch.get_loops(tiled.block)[-1])
        return join_groups(anchor.scheduled(tiled.sch), vector, bundle)
