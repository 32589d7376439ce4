"""A product of two computed tensors on the CPU; the right one is packed into register-wide panels when it is read."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates import nest
from anole.targets.shared import anchor
from anole.targets.shared.product import ProductTemplate
from anole.task import BatchMatmul

_PANELS = "panels"


@dataclass(frozen=True)
class BatchMatmulTemplate(ProductTemplate):
    """Products of a batch; `batch_matmul_space` says what their knobs mean.

    The splits of a config may cover more rows and columns than there are; the surplus is discarded.
    """

    unit: VectorUnit

    def compute(self, workload: BatchMatmul, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns the product of both operands, (batch, rows, columns)."""
        w, panel = workload, config["tile_x"][2]
        rows, columns = prod(config["tile_y"]), prod(config["tile_x"])
        panels = self._panels(w, panel, columns, packed)
        k = te.reduce_axis((0, w.inner), "k")

        def point(b: Any, y: Any, x: Any) -> Any:
            row = y if rows == w.rows else tirx.min(y, w.rows - 1)
            return te.sum(data[b, row, k] * panels[b, x // panel, k, x % panel], axis=k)

        product = te.compute((w.batch, rows, columns), point, name="batch_matmul", attrs={ANCHOR: w.operator})
        if (rows, columns) == (w.rows, w.columns):
            return product
        return te.compute((w.batch, w.rows, w.columns), lambda b, y, x: product[b, y, x], name="crop")

    def schedule(self, func: tirx.PrimFunc, workload: BatchMatmul, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        b, y, x, k = sch.get_loops(block)
        lanes = self.unit.lanes_of(config["tile_x"][2])
        vectors = config["tile_x"][2] // lanes

        y_parallel, y_tile, y_register = sch.split(y, config["tile_y"])
        x_parallel, x_tile, x_register, x_vector = sch.split(x, [*config["tile_x"][:2], vectors, lanes])
        k_outer, k_inner = sch.split(k, config["tile_k"])
        chunks = [b, y_parallel, x_parallel]
        sch.reorder(*chunks, x_tile, y_tile, k_outer, k_inner, y_register, x_register, x_vector)

        # Fuse the chunks first: afterwards the panels stand between them and the tiles.
        parallel = sch.fuse(*chunks)
        sch.reverse_compute_at(epilogue, y_tile, preserve_unit_loops=True)
        self._place_panels(sch, config["pack_at"], x_tile)
        sch.parallel(parallel)
        nest.vectorize_epilogue(sch, epilogue, 3, self.unit.lanes)
        sch.vectorize(x_vector)
        for loop in (y_register, x_register):
            sch.unroll(loop)
        if config["unroll_explicit"]:
            nest.unroll_reduction(sch, [k_inner], config["tile_y"][2] * vectors, config["auto_unroll_max_step"])
        sch.decompose_reduction(block, k_outer)
        return anchor.scheduled(sch)

    def _panels(self, w: BatchMatmul, panel: int, columns: int, right: te.Tensor) -> te.Tensor:
        """Returns the right operand as (batch, panels, inner, panel width), zeros beyond its own columns."""

        def point(b: Any, p: Any, k: Any, lane: Any) -> Any:
            x = p * panel + lane
            value = right[b, x, k] if w.transpose_right else right[b, k, x]
            return value if columns == w.columns else tirx.if_then_else(x < w.columns, value, tirx.const(0, w.dtype))

        return te.compute((w.batch, columns // panel, w.inner, panel), point, name=_PANELS)

    def _place_panels(self, sch: s_tir.Schedule, pack_at: str, tile: Any) -> None:
        """Places the packing of the right operand: nowhere, each panel where it is needed, or all of them first."""
        panels = anchor.find_block(sch, _PANELS)
        if pack_at == "inline":
            sch.compute_inline(panels)
            return
        if pack_at == "tile":
            sch.compute_at(panels, tile)
        nest.vectorize_copy(sch, panels, self.unit.lanes)
        if pack_at == "root":
            batch, panel = sch.get_loops(panels)[:2]
            sch.parallel(sch.fuse(batch, panel))
