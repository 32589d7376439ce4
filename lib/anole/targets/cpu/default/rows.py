"""The schedule of functions that make several passes over each row, such as softmax.

All blocks run row by row. A row then stays in the cache from one block to the next, intermediate results are only one
row long, and threads synchronize once instead of once per block.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import s_tir

from anole.ir.nodes import blocks_of
from anole.targets.cpu.default.loop_nests import (
    MIN_PARALLEL_WORK,
    N_ACCUMULATORS,
    Machine,
    accumulate,
    block_properties,
    loops_inside,
    run_in_parallel,
)
from anole.targets.cpu.default.memory_access import Block
from anole.targets.cpu.device.lowering import PARTITION

_N_SCALAR_LANES = 4
"""Number of partial results that are added one by one."""

_MIN_ROWS_PER_THREAD = 4

LoopRV = Any
SBlockRV = Any


def schedule_rows(schedule: s_tir.Schedule, blocks: Sequence[SBlockRV], machine: Machine) -> None:
    """Compute all blocks of a function in one parallel loop over its rows; the last block writes the result.

    Raises:
        ValueError: the blocks do not share their rows, vectors do not divide a row, or there are too few rows.
    """
    descriptions = [block_properties(schedule, rv) for rv in blocks]
    *earlier, last = descriptions
    reductions = [block for block in earlier if block.reduces]
    if len(earlier) < 2 or not reductions or last.reduces:
        raise ValueError("there are no rows with several passes")
    n_rows = reductions[0].results
    rows, is_large = last.leading(n_rows), sum(block.work for block in descriptions) >= MIN_PARALLEL_WORK
    if not 0 < rows < len(last.axes):
        raise ValueError("the result and the reductions have different rows")
    if is_large and n_rows < _MIN_ROWS_PER_THREAD * machine.threads:
        raise ValueError("there are too few rows for the threads to share")
    lanes = machine.lanes(*descriptions)
    for rv, block in zip(blocks, descriptions, strict=True):
        if block.reduces:
            _split_into_lanes(schedule, rv, block, lanes, 1 if machine.varies else N_ACCUMULATORS)
    loops = schedule.get_loops(blocks[-1])
    _vectorize(schedule, loops[rows:], lanes)
    *_, row = run_in_parallel(schedule, loops[:rows], machine) if is_large else loops[:rows]
    for rv in reversed(blocks_of(schedule)[:-1]):
        _compute_in_row(schedule, rv, row, n_rows, lanes)


def _split_into_lanes(schedule: s_tir.Schedule, rv: SBlockRV, block: Block, lanes: int, max_vectors: int) -> None:
    """Split a reduction into up to `max_vectors` vectors of partial results, then few lanes, then single values."""
    *spatial, loop = schedule.get_loops(rv)
    if not block.axes[-1].reduction or any(axis.reduction for axis in block.axes[:-1]):
        raise ValueError("rows are not reduced along their last axis alone")
    extent = int(schedule.get(loop).extent)
    in_flight = next(n * lanes for n in range(max_vectors, 0, -1) if n == 1 or extent % (n * lanes) == 0)
    for width in (in_flight, lanes, _N_SCALAR_LANES):
        if width >= int(schedule.get(loop).extent):
            continue
        if int(schedule.get(loop).extent) % width:
            raise ValueError(f"{width} lanes do not divide a row")
        _, vector = schedule.split(loop, [None, width])
        schedule.rfactor(vector, len(spatial))
        loop = schedule.get_loops(rv)[-1]


def _compute_in_row(schedule: s_tir.Schedule, rv: SBlockRV, row: LoopRV, n_rows: int, lanes: int) -> None:
    block = block_properties(schedule, rv)
    if not block.reduces and not block.leading(n_rows):
        # All rows share this block, such as a mask.
        _vectorize(schedule, schedule.get_loops(rv)[-1:], lanes)
        return
    if block.reduces:
        accumulate(schedule, rv, row, block.results // n_rows)
    else:
        schedule.compute_at(rv, row)
        _vectorize(schedule, loops_inside(schedule, rv, row), lanes)
    if prod(int(schedule.get(loop).extent) for loop in schedule.get_loops(rv)) != block.work:
        raise ValueError("a row depends on other rows")


def _vectorize(schedule: s_tir.Schedule, loops: Sequence[LoopRV], lanes: int) -> None:
    fused = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    steps, vector = schedule.split(fused, [None, lanes])
    schedule.vectorize(vector)
    schedule.annotate(steps, PARTITION, 1)
