"""A product of two computed tensors on CUDA: a dense layer's nest for each batch element, both inputs staged."""

from __future__ import annotations

from typing import Any

from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.cuda.templates import nest
from anole.targets.cuda.templates.tiling import panel_width
from anole.targets.shared import anchor
from anole.targets.shared.product import ProductTemplate
from anole.task import BatchMatmul


class BatchMatmulTemplate(ProductTemplate):
    """Products of a batch; `batch_matmul_space` says what their knobs mean."""

    def compute(self, workload: BatchMatmul, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the product of both operands, (batch, rows, columns)."""
        w = workload
        k = te.reduce_axis((0, w.inner), "k")

        def point(b: Any, y: Any, x: Any) -> Any:
            return te.sum(data[b, y, k] * (packed[b, x, k] if w.transpose_right else packed[b, k, x]), axis=k)

        return te.compute((w.batch, w.rows, w.columns), point, name="batch_matmul", attrs={ANCHOR: w.operator})

    def schedule(self, func: tirx.PrimFunc, workload: BatchMatmul, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        b, y, x, k = sch.get_loops(block)
        steps = config["tile_k"][1]
        outer, inner = sch.split(k, config["tile_k"])
        tiles = nest.bind_tiles(sch, [b], [(y, config["tile_y"]), (x, config["tile_x"])], [outer], [inner])
        nest.stage(sch, block, 0, outer, tiles.extents, steps)
        contiguous = steps if workload.transpose_right else panel_width(config["tile_x"])
        nest.stage(sch, block, 1, outer, tiles.extents, contiguous)
        nest.place_epilogue(sch, epilogue, tiles.threads[-1])
        nest.unroll(sch, tiles.grid, config)
        sch.decompose_reduction(block, outer)
        return anchor.scheduled(sch)
