"""A dense layer of many rows on CUDA: weights packed into panels of one block's features, both inputs staged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.cuda.templates import nest
from anole.targets.cuda.templates.tiling import panel_width
from anole.targets.shared import anchor
from anole.task import Dense


@dataclass(frozen=True)
class GemmTemplate:
    """A matrix product with constant weights; `gemm_space` says what its knobs mean."""

    def packed_shape(self, workload: Dense, config: Config) -> tuple[int, ...]:
        """Returns (panels, in, panel width)."""
        panel = panel_width(config["tile_x"])
        return (workload.out_features // panel, workload.in_features, panel)

    def pack_weight(self, workload: Dense, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns (in, out) weights in panels, each of which one block of threads reads."""
        panels = weight.reshape(workload.in_features, -1, panel_width(config["tile_x"]))
        return np.ascontiguousarray(panels.transpose(1, 0, 2))

    def compute(self, workload: Dense, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns (rows, out) of (rows, in) data and packed weights."""
        w, panel = workload, panel_width(config["tile_x"])
        k = te.reduce_axis((0, w.in_features), "k")

        def point(y: Any, x: Any) -> Any:
            return te.sum(data[y, k] * packed[x // panel, k, x % panel], axis=k)

        return te.compute((w.batch, w.out_features), point, name="dense", attrs={ANCHOR: w.operator})

    def schedule(self, func: tirx.PrimFunc, workload: Dense, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        y, x, k = sch.get_loops(block)
        outer, inner = sch.split(k, config["tile_k"])
        tiles = nest.bind_tiles(sch, [], [(y, config["tile_y"]), (x, config["tile_x"])], [outer], [inner])
        nest.stage(sch, block, 0, outer, tiles.extents, config["tile_k"][1])
        nest.stage(sch, block, 1, outer, tiles.extents, panel_width(config["tile_x"]))
        nest.place_epilogue(sch, epilogue, tiles.threads[-1])
        nest.unroll(sch, tiles.grid, config)
        sch.decompose_reduction(block, outer)
        return anchor.scheduled(sch)
