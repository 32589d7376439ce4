"""What the templates of direct, grouped and depthwise convolutions on the CPU share: packed weights and loop nest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from numpy.typing import NDArray
from tvm import s_tir, tirx

from anole.record import Config
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates import nest
from anole.targets.cpu.templates.convolution_tiles import tile_order
from anole.targets.shared import anchor
from anole.targets.shared.packing import in_panels
from anole.task import Conv2d


@dataclass(frozen=True)
class ConvolutionTemplate:
    """Weights in panels as wide as a register tile's filters."""

    unit: VectorUnit

    def packed_shape(self, workload: Conv2d, config: Config) -> tuple[int, ...]:
        """Returns (panels, kernel height, kernel width, channels of a group, panel width)."""
        channels = workload.in_channels // workload.groups
        return (prod(config["tile_f"][:2]), *workload.kernel, channels, config["tile_f"][2])

    def pack_weight(self, workload: Conv2d, config: Config, weight: NDArray[Any]) -> NDArray[Any]:
        """Returns HWIO weights in whole panels, zero-padded."""
        return in_panels(weight, config["tile_f"][2], prod(config["tile_f"]))


@dataclass(frozen=True)
class TiledConvolution:
    """The loops of a convolution's block, split by a config, and the steps that arrange them.

    Attributes:
        sch: the function's schedule.
        block: the anchor.
        epilogue: the block that reads its result.
        chunks: the parallel loops.
        tiles: the loops over tiles inside a chunk, of filters, rows and columns, in the config's order.
        reduction: the loops of the reduction.
        registers: the loops of the register tile, over rows, columns and vectors.
        vector: the loop over lanes.
        steps: vector operations of the register tile.
    """

    sch: s_tir.Schedule
    block: Any
    epilogue: Any
    chunks: Sequence[Any]
    tiles: Sequence[Any]
    reduction: Sequence[Any]
    registers: Sequence[Any]
    vector: Any
    steps: int

    @classmethod
    def of(cls, func: tirx.PrimFunc, config: Config, lanes: int) -> TiledConvolution:
        """Splits the loops of a function's anchor; vectors have the given lanes."""
        sch = s_tir.Schedule(func)
        block = anchor.find_anchor(sch)
        epilogue = anchor.join_epilogue(sch, block)
        n, y, x, f, *reduction = sch.get_loops(block)
        vectors = config["tile_f"][2] // lanes
        f_parallel, f_tile, f_register, vector = sch.split(f, [*config["tile_f"][:2], vectors, lanes])
        y_parallel, y_tile, y_register = sch.split(y, config["tile_y"])
        x_tile, x_register = sch.split(x, config["tile_x"])
        chunks = [f_parallel, y_parallel] if config.get("parallel_order", "fy") == "fy" else [y_parallel, f_parallel]
        tiles = [(f_tile, y_tile, x_tile)[axis] for axis in tile_order(config["tile_order"])]
        registers = [y_register, x_register, f_register]
        steps = config["tile_y"][2] * config["tile_x"][1] * vectors
        return cls(sch, block, epilogue, [n, *chunks], tiles, reduction, registers, vector, steps)

    def arrange(
        self, config: Config, reduction: Sequence[Any], registers: Sequence[Any], unit: VectorUnit, lanes: int
    ) -> None:
        """Orders and annotates the nest, and places the padding and the epilogue, of at most these lanes, in it.

        The loops of the reduction and of the register tile are given outermost first.
        """
        sch = self.sch
        sch.reorder(*self.chunks, *self.tiles, *reduction, *registers, self.vector)
        # Fuse the chunks first: afterwards the padding stands between them and the tiles.
        parallel = sch.fuse(*self.chunks)
        sch.reverse_compute_at(self.epilogue, self.tiles[-1], preserve_unit_loops=True)
        nest.place_padding(sch, config["pad_at"], parallel, unit.lanes)
        sch.parallel(parallel)
        nest.vectorize_epilogue(sch, self.epilogue, len(self.tiles) + 1, lanes)
        sch.vectorize(self.vector)
        for loop in registers:
            sch.unroll(loop)
