"""The time loop of a recurrent layer as one CPU kernel.

Directions and rows of the batch are independent: if there are enough of them, each thread runs all steps of its share.
Otherwise all threads share the hidden units of a step, with a barrier after it.

Loading weights, mostly from the second-level cache, dominates a step. Each step therefore visits the weights in the
reverse order of the previous step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from anole.ir.nodes import make_prefetch
from anole.ir.polynomials import Value
from anole.targets.shared.recurrence import LANES, RECURRENCE, Recurrence
from anole.targets.shared.recurrent_step import Arguments, RecurrentStep, Sums, UnitPosition, allocate

OPAQUE = 8
"""TVM's operator pattern for a function that is never fused."""


@dataclass(frozen=True)
class Tiling:
    """How a kernel is tiled and divided among threads.

    Attributes:
        rows: rows of the batch that are computed together; the last tile may extend beyond the batch.
        blocks: blocks of hidden units whose accumulators are in registers together; it divides the number of blocks.
        strands: parts of the batch that run through all steps independently, with the same number of tiles; 1 if the
            state is quantized, since its scale depends on the entire batch.
        parts: parts into which each step's tiles are divided among threads, instead of directions and strands; 1 for
            strands. It divides the number of tiles of all directions; with a dynamic batch, of one tile of rows.
    """

    rows: int = 1
    blocks: int = 1
    strands: int = 1
    parts: int = 1


def recurrent_kernel(
    recurrence: Recurrence, tiling: Tiling | None = None, single_tiling: Tiling | None = None
) -> tirx.PrimFunc:
    """Return the kernel of a recurrence; its arguments are the recurrence's parameters, then its results.

    If the batch is dynamic and `single_tiling` is given, a batch of 1 has its own code with that tiling.
    """
    with recurrent_function(recurrence) as (builder, arguments):
        general = _Kernel(recurrence, tiling or Tiling(), arguments)
        if single_tiling is None:
            general.write()
        else:
            with T.If(arguments.symbols[recurrence.batch_symbol] == 1):
                with T.Then():
                    _Kernel(replace(recurrence, batch=1, batch_symbol=None), single_tiling, arguments).write()
                with T.Else():
                    general.write()
    return builder.get()


@contextmanager
def recurrent_function(recurrence: Recurrence) -> Iterator[tuple[IRBuilder, Arguments]]:
    """Open a function that is marked as the kernel of a recurrence; yield its builder and its operands."""
    with IRBuilder() as builder, T.prim_func(is_private=True, s_tir=True):
        T.func_attr({"tirx.noalias": True, "op_pattern": OPAQUE, RECURRENCE: recurrence.to_json()})
        yield builder, Arguments.declare(recurrence)


class _Kernel(RecurrentStep):
    def __init__(self, recurrence: Recurrence, tiling: Tiling, arguments: Arguments) -> None:
        super().__init__(recurrence, arguments)
        self._tiling = tiling
        rows_at_once = tiling.rows * tiling.strands
        self._tiles = (self._batch + rows_at_once - 1) // rows_at_once
        self._rows_of_strand = self._tiles * tiling.rows
        self._has_surplus = rows_at_once > 1 and not (isinstance(self._batch, int) and self._batch % rows_at_once == 0)
        self._allocate((recurrence.directions, self._rows_of_strand * tiling.strands, recurrence.padded))
        self._groups = recurrence.blocks // tiling.blocks

    def write(self) -> None:
        """Emit the entire kernel."""
        if self._tiling.parts > 1:
            self._write_shared()
        else:
            self._write_strands()

    def _write_strands(self) -> None:
        strands, rows = self._tiling.strands, self._rows_of_strand
        with T.parallel(0, self._layer.directions * strands) as strand:
            direction, first_row = strand // strands, strand % strands * rows
            with T.serial(0, rows) as row, T.serial(0, self._layer.padded) as unit:
                self.begin((direction, first_row + row, unit))
            with T.serial(0, self._steps) as step:
                if self._layer.quantized:
                    self.quantize(step, direction)
                for part in self.parts():
                    # A group's weights stay in the cache from one tile to the next.
                    with T.serial(0, self._groups) as at, T.serial(0, self._tiles) as tile:
                        group = alternating_index(step, at, self._groups)
                        part(step, direction, first_row + tile * self._tiling.rows, group)
            with T.serial(0, rows) as row, T.serial(0, self._layer.hidden) as unit:
                self.end((direction, first_row + row, unit))

    def _write_shared(self) -> None:
        layer, rows, per_direction = self._layer, self._rows_of_strand, self._groups * self._tiles
        n_tiles = layer.directions * per_direction // self._tiling.parts
        with T.serial(0, layer.directions * rows) as index, T.serial(0, layer.padded) as unit:
            self.begin((index // rows, index % rows, unit))
        with T.serial(0, self._steps) as step:
            if layer.quantized:
                with T.parallel(0, layer.directions) as direction:
                    self.quantize(step, direction)
            for part in self.parts():
                with T.parallel(0, self._tiling.parts) as part_index, T.serial(0, n_tiles) as at:
                    index = part_index * n_tiles + alternating_index(step, at, n_tiles)
                    group, tile = index % per_direction // self._tiles, index % self._tiles
                    part(step, index // per_direction, tile * self._tiling.rows, group)
        with T.serial(0, layer.directions * rows) as index, T.serial(0, layer.hidden) as unit:
            self.end((index // rows, index % rows, unit))

    def _multiply(self, step: Value, direction: Value, first_row: Value, group: Value, gates: Sequence[int]) -> None:
        self._prefetch(step, direction, first_row, group, gates)
        super()._multiply(step, direction, first_row, group, gates)

    def _prefetch(self, step: Value, direction: Value, first_row: Value, group: Value, gates: Sequence[int]) -> None:
        """Prefetch states that other threads computed, and the next step's projected inputs.

        The hardware prefetcher misses both: runs of states are too short, and projected inputs lie too far apart.
        """
        rows, blocks, next_step = self._tiling.rows, self._tiling.blocks, tirx.min(step + 1, self._steps - 1)
        if self._tiling.parts > 1:
            with T.serial(0, rows * self._layer.blocks) as at:
                row, block = first_row + at // self._layer.blocks, at % self._layer.blocks
                T.evaluate(make_prefetch(self._state(step, (direction, row, block * LANES)), level=1))
        with T.serial(0, rows * blocks) as at:
            row, block = first_row + at // blocks, group * blocks + at % blocks
            for gate in gates:
                T.evaluate(make_prefetch(self._projection(next_step, (direction, row, block * LANES), gate), level=1))

    def _source(self, step: Value, at: Value) -> Value:
        return alternating_index(step, at, self._layer.hidden)

    @contextmanager
    def _tile(
        self, direction: Value, first_row: Value, group: Value, has_lanes: bool = True
    ) -> Iterator[tuple[UnitPosition, Sums]]:
        blocks, lanes = self._tiling.blocks, T.vectorized(0, LANES) if has_lanes else T.serial(0, LANES)
        with T.unroll(0, self._tiling.rows) as row, T.unroll(0, blocks) as block, lanes as lane:
            unit = (group * blocks + block) * LANES + lane
            yield (direction, first_row + row, unit), lambda gate: (row, block, gate, lane)

    def _allocated_sums(self) -> Any:
        return allocate(self._tiling.rows, self._tiling.blocks, self._layer.gates, LANES, scope="local")


def alternating_index(step: Value, at: Value, extent: Value) -> Value:
    """Return the index of a loop that runs forward in even steps and backward in odd steps.

    A step then begins with the weights that ended the previous step and are still cached. If the weights slightly
    exceed a cache, the same order in every step would miss on all of them.
    """
    return at if isinstance(extent, int) and extent == 1 else step % 2 * (extent - 1) + at * (1 - step % 2 * 2)
