"""The default tiling of a recurrent layer's kernel for a CPU's registers, caches and threads."""

from __future__ import annotations

from dataclasses import replace

from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.shared.recurrence import LANES, Recurrence
from anole.targets.shared.recurrent_kernel import Tiling

_MIN_SHARED_PRODUCTS = 1 << 15
"""Minimum number of products in a step for which sharing it among threads saves more than the barrier costs."""

_MIN_ROWS_PER_STRAND = 8
"""Minimum number of rows per thread for which computing takes longer than loading the weights."""


def recurrence_tilings(recurrence: Recurrence, threads: int, unit: VectorUnit) -> tuple[Tiling, Tiling | None]:
    """Return the tiling of a recurrent layer's kernel and, if the batch is dynamic, the tiling for a batch of 1."""
    tiling = recurrence_tiling(recurrence, threads, unit)
    if recurrence.batch_symbol is None:
        return tiling, None
    return tiling, recurrence_tiling(replace(recurrence, batch=1, batch_symbol=None), threads, unit)


def recurrence_tiling(recurrence: Recurrence, threads: int, unit: VectorUnit) -> Tiling:
    """Return the tiling of a recurrent layer's kernel.

    Half of the registers hold accumulators, of several rows if possible, because rows share each load of a weight. Each
    thread runs separate directions, or rows if there are many; otherwise threads share large steps.
    """
    accumulators = max(1, unit.registers * unit.lanes // (2 * LANES * recurrence.gates))

    def cost(rows: int) -> int:
        """Return the time of loads and products: a load of a weight takes about as long as a product."""
        return -(-recurrence.batch // rows) * (1 + rows)

    rows = min(range(1, accumulators + 1), key=cost)
    tiles = -(-recurrence.batch // rows)
    strands = next((n for n in range(1, threads + 1) if n * recurrence.directions % threads == 0), 1)
    products = recurrence.directions * recurrence.batch * recurrence.gates * recurrence.hidden**2
    if strands > 1:
        has_rows = tiles % strands == 0 and recurrence.batch // strands >= _MIN_ROWS_PER_STRAND
        if recurrence.quantized or not has_rows:
            strands = 1
            if products >= _MIN_SHARED_PRODUCTS:
                # If the batch is dynamic, threads must share even a single tile evenly.
                row_tiles = recurrence.directions * (1 if recurrence.batch_symbol else tiles)
                blocks = _even_blocks(recurrence.blocks, accumulators // rows, row_tiles, threads)
                shares = row_tiles * (recurrence.blocks // blocks)
                return Tiling(rows, blocks, parts=threads if shares % threads == 0 else shares)
    return Tiling(rows, _largest_divisor(recurrence.blocks, accumulators // rows), strands)


def _even_blocks(blocks: int, limit: int, row_tiles: int, threads: int) -> int:
    """Return the maximum number of blocks per tile that gives all threads equal shares of a step, or 1."""
    counts = [n for n in range(1, limit + 1) if blocks % n == 0 and blocks // n * row_tiles % threads == 0]
    return max(counts, default=1)


def _largest_divisor(extent: int, limit: int) -> int:
    """Return the largest divisor of an extent up to a limit."""
    return max(n for n in range(1, limit + 1) if extent % n == 0)
