"""Dense layers with few rows on CUDA (GEMV): every weight is read once, and threads share a reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.shared import anchor
from anole.task import Dense
from anole_cuda.templates import nest


@dataclass(frozen=True)
class GemvTemplate:
    """A product of a few rows of data with constant weights; see `gemv_space` for its knobs."""

    def packed_shape(self, workload: Dense, config: Config) -> tuple[int, ...]:
        """Return (out, in)."""
        return (workload.out_features, workload.in_features)

    def pack_weight(self, workload: Dense, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Transpose (in, out) weights to (out, in), which makes the reads of threads along the reduction contiguous."""
        return np.ascontiguousarray(weight.T)

    def compute(self, workload: Dense, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Multiply (rows, in) data with packed weights, as (rows, out)."""
        w = workload
        k = te.reduce_axis((0, w.in_features), "k")
        shape = (w.batch, w.out_features)
        return te.compute(
            shape, lambda y, x: te.sum(data[y, k] * packed[x, k], axis=k), name="dense", attrs={ANCHOR: w.operator}
        )

    def schedule(self, func: tirx.PrimFunc, workload: Dense, config: Config) -> tirx.PrimFunc:
        """Schedule the function with the config's loop nest."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        _, _, k = sch.get_loops(block)
        partial = sch.rfactor(sch.split(k, config["tile_k"])[1], 0)
        sch.set_scope(partial, 0, "local")

        y, x, k_thread = sch.get_loops(block)
        y_block, y_inner = sch.split(y, config["tile_y"])
        x_block, x_thread, x_inner = sch.split(x, config["tile_x"])
        sch.reorder(y_block, x_block, x_thread, y_inner, x_inner, k_thread)
        sch.compute_at(partial, x_thread, preserve_unit_loops=True)
        nest.place_epilogue(sch, epilogue, x_thread)
        k_outer = self._schedule_partial(sch, partial, config)
        nest.bind(sch, {"blockIdx.x": y_block, "blockIdx.y": x_block, "threadIdx.y": x_thread, "threadIdx.x": k_thread})
        sch.decompose_reduction(partial, k_outer)
        return anchor.scheduled(sch)

    def _schedule_partial(self, sch: s_tir.Schedule, partial: Any, config: Config) -> Any:
        """Schedule a thread's partial sum, with operands in registers; return its outermost loop."""
        k_thread, y, x, k_outer, k_inner = sch.get_loops(partial)[-5:]
        sch.reorder(k_thread, k_outer, k_inner, y, x)
        for operand in (0, 1):
            copy = sch.cache_read(partial, operand, "local")
            sch.compute_at(copy, k_outer, preserve_unit_loops=True)
            nest.vectorize(sch, copy)
        nest.bind(sch, {"threadIdx.x": k_thread})
        # Unroll only this loop: TVM cannot lower an unrolled cross-thread reduction.
        nest.unroll(sch, k_outer, config)
        return k_outer
