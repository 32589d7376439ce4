"""Matrix products on the CPU; the right operand is packed into register-wide panels, ahead of time or at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.ir.symbols import simplify
from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates import nest
from anole.targets.shared import anchor
from anole.targets.shared.packed_words import product
from anole.targets.shared.templates import UnpackedTemplate, pack_panels
from anole.task import BatchMatmul, Dense

_PANELS = "panels"


@dataclass(frozen=True)
class _ProductTemplate:
    """The loop nest of matrix products; see `product_space` for their knobs.

    The splits of a config may cover more rows and columns than there are; the surplus is discarded.
    """

    unit: VectorUnit

    def schedule(self, func: tirx.PrimFunc, workload: Dense | BatchMatmul, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        *batch, y, x, k = sch.get_loops(block)
        lanes = self.unit.lanes_of(config["tile_x"][2])
        vectors = config["tile_x"][2] // lanes

        *_, rows, columns = (axis.dom.extent for axis in sch.get(epilogue).iter_vars)
        varies = [not isinstance(extent, tirx.IntImm) for extent in (rows, columns, sch.get(k).extent)]
        # A config's tile counts might not divide a dynamic extent: columns and steps are split one by one.
        panels, step = 1 if varies[1] else config["tile_x"][1], 1 if varies[2] else config["tile_k"][1]
        y_parallel, y_tile, y_register = sch.split(y, [None, *config["tile_y"][1:]])
        x_parallel, x_tile, x_register, x_vector = sch.split(x, [None, panels, vectors, lanes])
        k_outer, k_inner = sch.split(k, [None, step])
        chunks = [*batch, y_parallel, x_parallel] if batch else [x_parallel, y_parallel]
        tiles, reduction, registers = [x_tile, y_tile], [k_outer, k_inner], [y_register, x_register]
        pack_at = config.get("pack_at", "inline")
        if batch and any(varies):
            # Any number of chunks may read a panel. TVM can bound a tile's accumulators only outside of fused loops.
            pack_at, chunks, tiles = "root", [*batch, y_parallel], [x_parallel, *tiles]
        steps = config["tile_y"][2] * vectors
        tiled = nest.TiledNest(sch, block, epilogue, chunks, tiles, reduction, registers, x_vector, steps)
        tiled.arrange(_PANELS, pack_at, self.unit.lanes, self.unit.lanes)
        func = tiled.finish([k_inner], config["unroll_explicit"] * config["auto_unroll_max_step"])
        func = nest.end_after_rows(func, sch.get(y_tile), rows, config["tile_y"][2])
        if not config.get("prefetch_k"):
            return func
        # Prefetch weights of a later reduction step, possibly of the next panel.
        distance = config["prefetch_k"]
        return nest.prefetch(func, sch.get(k_inner), lambda panel, k, x: (panel, k + distance, x), vectors)


class DenseTemplate(_ProductTemplate):
    """A dense layer: a matrix product with constant weights, which are streamed once."""

    def packed_shape(self, workload: Dense, config: Config) -> tuple[int, ...]:
        """Return (panels, in, panel width)."""
        return (prod(config["tile_x"][:2]), workload.in_features, config["tile_x"][2])

    def pack_weight(self, workload: Dense, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Pack (in, out) weights into panels, zero-padded."""
        return pack_panels(weight, config["tile_x"][2], prod(config["tile_x"]))

    def compute(self, workload: Dense, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Multiply (rows, in) data with packed weights, as (rows, out)."""
        return _multiply(workload, config, data, packed, (workload.batch, workload.out_features))


class BatchMatmulTemplate(UnpackedTemplate, _ProductTemplate):
    """Batched matmul of two activations; the right operand is packed into panels at run time."""

    def compute(self, workload: BatchMatmul, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Multiply both operands, as (batch, rows, columns)."""
        w, columns = workload, covered_extent(workload.columns, config["tile_x"], config["tile_x"][2])
        panels = _pack_panels(workload, config["tile_x"][2], columns, packed)
        return _multiply(w, config, data, panels, (w.batch, w.rows, w.columns))


def _multiply(
    w: Dense | BatchMatmul, config: Config, data: te.Tensor, panels: te.Tensor, shape: tuple[Any, ...]
) -> te.Tensor:
    """Multiply data with panels, maybe batched, and crop the surplus of the config's splits."""
    *batch, out_rows, out_columns = shape
    panel = config["tile_x"][2]
    rows = covered_extent(out_rows, config["tile_y"], prod(config["tile_y"][1:]))
    columns = covered_extent(out_columns, config["tile_x"], panel)
    inner = data.shape[-1]
    k = te.reduce_axis((0, int(inner) if isinstance(inner, tirx.IntImm) else inner), "k")

    def point(y: Any, x: Any, *b: Any) -> Any:
        row = y if anchor.is_same_extent(rows, out_rows) else tirx.min(y, out_rows - 1)
        return te.sum(product(w.dtype, data[(*b, row, k)], panels[(*b, x // panel, k, x % panel)]), axis=k)

    at = (lambda b, y, x: point(y, x, b)) if batch else (lambda y, x: point(y, x))
    result = te.compute((*batch, rows, columns), at, name=w.operator, attrs={ANCHOR: w.operator})
    return anchor.crop(result, *shape)


def covered_extent(extent: Any, split: Sequence[int], chunk: int) -> Any:
    """Return the extent that a split covers; a dynamic extent is rounded up to chunks."""
    return prod(split) if isinstance(extent, int) else simplify((extent + chunk - 1) // chunk * chunk)


def _pack_panels(w: BatchMatmul, panel: int, columns: Any, right: te.Tensor) -> te.Tensor:
    """Pack the right operand as (batch, panels, inner, panel width), with zeros beyond its columns."""

    def point(b: Any, p: Any, k: Any, lane: Any) -> Any:
        x = p * panel + lane
        value = right[b, x, k] if w.transpose_right else right[b, k, x]
        return (
            value
            if anchor.is_same_extent(columns, w.columns)
            else tirx.if_then_else(x < w.columns, value, tirx.const(0, right.dtype))
        )

    panels = columns // panel if isinstance(columns, int) else simplify(columns // panel)
    return te.compute((w.batch, panels, w.inner, panel), point, name=_PANELS)
