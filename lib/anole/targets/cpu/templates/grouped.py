"""Grouped convolution on the CPU: NHWC data, vectors over the filters of neighbouring groups."""

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
from anole.targets.cpu.templates.grouped_space import Bundle, n_bundles
from anole.targets.cpu.templates.lanes import join_groups
from anole.targets.cpu.templates.tile_orders import tile_order
from anole.targets.shared import anchor
from anole.task import Conv2d


@dataclass(frozen=True)
class GroupedTemplate:
    """Grouped convolution with few filters per group; `grouped_space` says what its knobs mean."""

    unit: VectorUnit

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Returns (panels, kernel height, kernel width, channels of a group, panel width)."""
        bundle, panel = Bundle.of(self.unit, workload), config["tile_f"][2]
        panels = n_bundles(self.unit, workload) * bundle.filters // panel
        return (panels, *workload.kernel, bundle.group_channels, panel)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns HWIO weights in whole panels, zero-padded."""
        panels, *_, panel = self.packed_shape(workload, config)
        padded = np.pad(weight, [(0, 0)] * 3 + [(0, panels * panel - workload.out_channels)])
        return np.ascontiguousarray(padded.reshape(*weight.shape[:3], panels, panel).transpose(3, 0, 1, 2, 4))

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the convolution of NHWC data with packed weights, as NHWC."""
        w, bundle = workload, Bundle.of(self.unit, workload)
        channels, filters = (n_bundles(self.unit, w) * each for each in (bundle.channels, bundle.filters))
        copied = any(w.padding) or channels > w.in_channels
        padded = anchor.pad(w, data, channels) if copied else data
        conv = _convolve(w, bundle, padded, packed, filters)
        if filters == w.out_channels:
            return conv
        shape = (w.batch, w.out_height, w.out_width, w.out_channels)
        return te.compute(shape, lambda n, y, x, f: conv[n, y, x, f], name="crop")

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        sch, bundle = s_tir.Schedule(func), Bundle.of(self.unit, workload)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        n, y, x, f, rc, ry, rx = sch.get_loops(block)
        vectors = config["tile_f"][2] // self.unit.lanes

        f_parallel, f_tile, f_register, f_vector = sch.split(f, [*config["tile_f"][:2], vectors, self.unit.lanes])
        y_parallel, y_tile, y_register = sch.split(y, config["tile_y"])
        x_tile, x_register = sch.split(x, config["tile_x"])
        tiles = [(f_tile, y_tile, x_tile)[axis] for axis in tile_order(config["tile_order"])]
        register = {"f": [f_register], "p": [y_register, x_register], "r": [rx]}
        registers = [loop for name in config["register_order"] for loop in register[name]]
        reduction = [ry, rc] if bundle.is_shuffled else [rc, ry]
        sch.reorder(n, f_parallel, y_parallel, *tiles, *reduction, *registers, f_vector)

        parallel = sch.fuse(n, f_parallel, y_parallel)
        sch.reverse_compute_at(epilogue, tiles[-1], preserve_unit_loops=True)
        nest.place_padding(sch, config["pad_at"], parallel, self.unit.lanes)
        sch.parallel(parallel)
        nest.vectorize_epilogue(sch, epilogue, len(tiles) + 1, self.unit.lanes)
        sch.vectorize(f_vector)
        for loop in (*registers, rc) if bundle.is_shuffled else registers:
            sch.unroll(loop)
        steps = config["tile_y"][2] * config["tile_x"][1] * vectors * workload.kernel[1]
        nest.unroll_reduction(sch, reduction, steps, config["auto_unroll_max_step"])
        sch.decompose_reduction(block, reduction[0])
        return join_groups(anchor.scheduled(sch), sch.get(sch.get_loops(block)[-1]), bundle)


def _convolve(w: Conv2d, bundle: Bundle, padded: te.Tensor, packed: te.Tensor, filters: int) -> te.Tensor:
    """Returns the convolution with the filters of all bundles, some of which may be zero, marked as the anchor."""
    panel = int(packed.shape[-1])
    rc = te.reduce_axis((0, bundle.group_channels), "rc")
    ry = te.reduce_axis((0, w.kernel[0]), "ry")
    rx = te.reduce_axis((0, w.kernel[1]), "rx")

    def point(n: Any, y: Any, x: Any, f: Any) -> Any:
        group = tirx.min(f % bundle.filters // bundle.group_filters, bundle.groups - 1)
        channel = f // bundle.filters * bundle.channels + group * bundle.group_channels + rc
        row, column = y * w.strides[0] + ry * w.dilation[0], x * w.strides[1] + rx * w.dilation[1]
        return te.sum(padded[n, row, column, channel] * packed[f // panel, ry, rx, rc, f % panel], axis=[rc, ry, rx])

    shape = (w.batch, w.out_height, w.out_width, filters)
    return te.compute(shape, point, name="grouped", attrs={ANCHOR: w.operator})
