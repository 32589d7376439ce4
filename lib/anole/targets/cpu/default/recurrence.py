"""Divides the kernel of a recurrent layer for a processor's registers, caches and threads."""

from __future__ import annotations

from dataclasses import replace

from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.shared.recurrence import LANES, Recurrence
from anole.targets.shared.recurrent_kernel import Tiling

_SHARED_PRODUCTS = 1 << 15
"""Products in a step from which on threads save more by sharing it than they spend on waiting for each other."""

_ROWS_OF_A_STRAND = 8
"""Rows from which on a thread computes with weights for longer than it takes to load them."""


def recurrence_tilings(recurrence: Recurrence, threads: int, unit: VectorUnit) -> tuple[Tiling, Tiling | None]:
    """Return how the kernel of a recurrent layer is divided, and how it is for a batch of 1 if the batch varies."""
    found = recurrence_tiling(recurrence, threads, unit)
    if recurrence.batch_symbol is None:
        return found, None
    return found, recurrence_tiling(replace(recurrence, batch=1, batch_symbol=None), threads, unit)


def recurrence_tiling(recurrence: Recurrence, threads: int, unit: VectorUnit) -> Tiling:
    """Return how the kernel of a recurrent layer is divided.

    Half of the registers hold sums, of several rows if there are any, since these share each load of a weight. Threads
    have directions of their own, or rows if there are many; otherwise they share large steps.
    """
    sums = max(1, unit.registers * unit.lanes // (2 * LANES * recurrence.gates))

    def cost(rows: int) -> int:
        """Return the time of loads and products: to load a weight takes about as long as to multiply it once."""
        return -(-recurrence.batch // rows) * (1 + rows)

    rows = min(range(1, sums + 1), key=cost)
    tiles = -(-recurrence.batch // rows)
    strands = next((n for n in range(1, threads + 1) if n * recurrence.directions % threads == 0), 1)
    products = recurrence.directions * recurrence.batch * recurrence.gates * recurrence.hidden**2
    if strands > 1:
        has_rows = tiles % strands == 0 and recurrence.batch // strands >= _ROWS_OF_A_STRAND
        if recurrence.quantized or not has_rows:
            strands = 1
            if products >= _SHARED_PRODUCTS:
                # If the batch varies, each thread has the same share of a single tile, too.
                of_rows = recurrence.directions * (1 if recurrence.batch_symbol else tiles)
                blocks = _even_blocks(recurrence.blocks, sums // rows, of_rows, threads)
                shares = of_rows * (recurrence.blocks // blocks)
                return Tiling(rows, blocks, parts=threads if shares % threads == 0 else shares)
    return Tiling(rows, _largest(recurrence.blocks, sums // rows), strands)


def _even_blocks(blocks: int, most: int, of_rows: int, threads: int) -> int:
    """Return the most blocks of a tile with which all threads have the same share of a step, or one block."""
    even = [n for n in range(1, most + 1) if blocks % n == 0 and blocks // n * of_rows % threads == 0]
    return max(even, default=1)


def _largest(extent: int, most: int) -> int:
    """Return the largest divisor of an extent up to a number."""
    return max(each for each in range(1, most + 1) if extent % each == 0)
