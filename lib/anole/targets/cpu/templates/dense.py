"""A dense layer on the CPU: weights packed into register-wide panels that are streamed once."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from anole.record import Config
from anole.targets.base import ANCHOR
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates import nest
from anole.targets.cpu.templates.prefetch import first_read, prefetch_at, prefetch_lines
from anole.targets.shared import anchor
from anole.task import Dense


@dataclass(frozen=True)
class DenseTemplate:
    """A matrix product with constant weights; `dense_space` says what its knobs mean.

    The splits of a config may cover more rows and features than there are; the surplus is discarded.
    """

    unit: VectorUnit

    def packed_shape(self, workload: Dense, config: Config) -> tuple[int, ...]:
        """Returns (panels, in, panel width)."""
        panel = config["tile_x"][2]
        return (prod(config["tile_x"][:2]), workload.in_features, panel)

    def pack_weight(self, workload: Dense, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns (in, out) weights in whole panels, zero-padded."""
        panel = config["tile_x"][2]
        missing = prod(config["tile_x"]) - workload.out_features
        padded = np.pad(weight, [(0, 0), (0, missing)])
        return np.ascontiguousarray(padded.reshape(workload.in_features, -1, panel).transpose(1, 0, 2))

    def compute(self, workload: Dense, config: Config, data: te.Tensor, packed: te.Tensor) -> te.Tensor:
        """Returns (rows, out) of (rows, in) data and packed weights."""
        w, panel = workload, config["tile_x"][2]
        rows, features = prod(config["tile_y"]), prod(config["tile_x"])
        k = te.reduce_axis((0, w.in_features), "k")

        def point(y: Any, x: Any) -> Any:
            row = y if rows == w.batch else tirx.min(y, w.batch - 1)
            return te.sum(data[row, k] * packed[x // panel, k, x % panel], axis=k)

        dense = te.compute((rows, features), point, name="dense", attrs={ANCHOR: w.operator})
        if (rows, features) == (w.batch, w.out_features):
            return dense
        return te.compute((w.batch, w.out_features), lambda y, x: dense[y, x], name="crop")

    def schedule(self, func: tirx.PrimFunc, workload: Dense, config: Config) -> tirx.PrimFunc:
        """Returns the function with the loop nest of the config."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        y, x, k = sch.get_loops(block)
        lanes = self.unit.lanes_of(config["tile_x"][2])
        vectors = config["tile_x"][2] // lanes

        y_parallel, y_tile, y_register = sch.split(y, config["tile_y"])
        x_parallel, x_tile, x_register, x_vector = sch.split(x, [*config["tile_x"][:2], vectors, lanes])
        k_outer, k_inner = sch.split(k, config["tile_k"])
        chunks = [x_parallel, y_parallel]
        sch.reorder(*chunks, x_tile, y_tile, k_outer, k_inner, y_register, x_register, x_vector)

        parallel = sch.fuse(*chunks)
        sch.reverse_compute_at(epilogue, y_tile, preserve_unit_loops=True)
        sch.parallel(parallel)
        nest.vectorize_epilogue(sch, epilogue, 3, self.unit.lanes)
        sch.vectorize(x_vector)
        for loop in (y_register, x_register):
            sch.unroll(loop)
        if config["unroll_explicit"]:
            nest.unroll_reduction(sch, [k_inner], config["tile_y"][2] * vectors, config["auto_unroll_max_step"])
        sch.decompose_reduction(block, k_outer)
        func = anchor.scheduled(sch)
        if not config.get("prefetch_k"):
            return func
        return _prefetch_weights(func, sch.get(k_inner), config["prefetch_k"], vectors)


def _prefetch_weights(func: tirx.PrimFunc, k_inner: tirx.For, steps: int, lines: int) -> tirx.PrimFunc:
    """Prefetches, in each reduction step, the weights of the step `steps` later, possibly of the next panel."""
    first = first_read(k_inner, dimensions=3)
    panel, k, x = first.indices
    wanted = tirx.BufferLoad(first.source, [panel, k + steps, x])
    return prefetch_at(func, k_inner, prefetch_lines(wanted, lines))
