"""Direct convolution on CUDA: NHWC data, weights packed into panels of one block's filters, both staged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.cuda.templates import nest
from anole.targets.cuda.templates.tiling import panel_width
from anole.targets.shared import anchor
from anole.targets.shared.packing import in_panels
from anole.task import Conv2d


@dataclass(frozen=True)
class Conv2dTemplate:
    """Direct convolution with any number of groups; `conv2d_space` says what its knobs mean."""

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Returns (panels, kernel height, kernel width, in, panel width)."""
        panel, channels = panel_width(config["tile_f"]), workload.in_channels // workload.groups
        return (workload.out_channels // panel, *workload.kernel, channels, panel)

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns HWIO weights in panels, each of which one block of threads reads."""
        return in_panels(weight, panel_width(config["tile_f"]))

    def compute(self, workload: Conv2d, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the convolution of NHWC data with packed weights, as NHWC."""
        size = (workload.out_height, workload.out_width, workload.out_channels)
        return anchor.convolve(workload, anchor.pad(workload, data), packed, size)

    def schedule(self, func: tirx.PrimFunc, workload: Conv2d, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        n, y, x, filters, rc, ry, rx = sch.get_loops(block)
        group, f = sch.split(filters, [workload.groups, None])
        splits = [sch.split(axis, config[f"tile_{name}"]) for axis, name in ((rc, "rc"), (ry, "ry"), (rx, "rx"))]
        outer, inner = zip(*splits, strict=True)
        spatial = [(y, config["tile_y"]), (x, config["tile_x"]), (f, config["tile_f"])]
        tiles = nest.bind_tiles(sch, [n, group], spatial, outer, inner)

        nest.stage(sch, block, 0, outer[-1], tiles.extents, config["tile_rc"][1])
        nest.stage(sch, block, 1, outer[-1], tiles.extents, panel_width(config["tile_f"]))
        nest.place_epilogue(sch, epilogue, tiles.threads[-1])
        nest.unroll(sch, tiles.grid, config)
        sch.decompose_reduction(block, outer[0])
        return anchor.scheduled(sch)
