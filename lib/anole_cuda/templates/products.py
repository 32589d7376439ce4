"""Matrix products on CUDA (dense layers with many rows, batched matmul), with both operands staged in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.shared import anchor
from anole.targets.shared.templates import UnpackedTemplate, pack_panels
from anole.task import BatchMatmul, Dense
from anole_cuda.templates import nest
from anole_cuda.templates.tiling import panel_width


@dataclass(frozen=True)
class GemmTemplate:
    """A matrix product with constant weights, in panels of one block's features; see `product_space` for its knobs."""

    def packed_shape(self, workload: Dense, config: Config) -> tuple[int, ...]:
        """Return (panels, in, panel width)."""
        panel = panel_width(config["tile_x"])
        return (workload.out_features // panel, workload.in_features, panel)

    def pack_weight(self, workload: Dense, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Pack (in, out) weights into panels, each read by one block of threads."""
        return pack_panels(weight, panel_width(config["tile_x"]))

    def compute(self, workload: Dense, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Multiply (rows, in) data with packed weights, as (rows, out)."""
        w, panel = workload, panel_width(config["tile_x"])
        k = te.reduce_axis((0, w.in_features), "k")

        def element(y: Any, x: Any) -> Any:
            return te.sum(data[y, k] * packed[x // panel, k, x % panel], axis=k)

        return te.compute((w.batch, w.out_features), element, name="dense", attrs={ANCHOR: w.operator})

    def schedule(self, func: tirx.PrimFunc, workload: Dense, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        return _schedule(func, config, panel_width(config["tile_x"]))


class BatchMatmulTemplate(UnpackedTemplate):
    """Batched matmuls of two activations; see `product_space` for their knobs."""

    def compute(self, workload: BatchMatmul, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Multiply both operands, as (batch, rows, columns)."""
        w = workload
        k = te.reduce_axis((0, w.inner), "k")

        def element(b: Any, y: Any, x: Any) -> Any:
            return te.sum(data[b, y, k] * (packed[b, x, k] if w.transpose_right else packed[b, k, x]), axis=k)

        return te.compute((w.batch, w.rows, w.columns), element, name="batch_matmul", attrs={ANCHOR: w.operator})

    def schedule(self, func: tirx.PrimFunc, workload: BatchMatmul, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        steps = config["tile_k"][1]
        return _schedule(func, config, steps if workload.transpose_right else panel_width(config["tile_x"]))


def _schedule(func: tirx.PrimFunc, config: Config, contiguous: int) -> tirx.PrimFunc:
    """Schedule the function with the config's loop nest; `contiguous` is the length of the right operand's runs."""
    sch = s_tir.Schedule(func)
    block = anchor.find_anchor(sch)
    epilogue = anchor.join_epilogue(sch, block)
    *batch, y, x, k = sch.get_loops(block)
    outer, inner = sch.split(k, config["tile_k"])
    spatial = [(y, config["tile_y"]), (x, config["tile_x"])]
    runs = (config["tile_k"][1], contiguous)
    nest.schedule_product(sch, block, epilogue, batch, spatial, [outer], [inner], runs, config)
    return anchor.scheduled(sch)
