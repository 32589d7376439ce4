"""What accesses to global and shared memory cost, counted for n configs at once; needs no compiler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anole.targets.cuda.templates.usage import FLOAT_BYTES, Counts

SECTOR_BYTES = 32
"""Global memory is read and written in sectors; a warp's access moves every sector that it touches."""

_BANKS = 32
"""Banks of shared memory; each serves one word of 32 bits in a cycle, to any number of threads."""

_WARP = 32


def widths(contiguous: Counts) -> Counts:
    """Returns how many values one instruction may move in contiguous runs of these lengths, shape (n,)."""
    return np.gcd(contiguous, 4)


def sectors(values: Counts, run: Counts) -> NDArray[np.float64]:
    """Returns how many sectors float32 values lie in, shape (n,).

    A run that is no whole number of sectors begins anywhere that a multiple of its length may, and so touches more.

    Args:
        values: their number.
        run: how many of them follow each other without a gap.
    """
    run_bytes = FLOAT_BYTES * np.minimum(run, values)
    touched = run_bytes + SECTOR_BYTES - np.gcd(run_bytes, SECTOR_BYTES)
    return np.asarray(values / np.minimum(run, values) * touched / SECTOR_BYTES)


def bank_cycles(threads: Sequence[Counts], strides: Sequence[Counts], width: Counts) -> NDArray[np.float64]:
    """Returns the cycles in which shared memory serves a warp that reads through it once, shape (n,).

    Threads that read the same words share them. Others conflict where their words lie in the same banks; words that are
    the greatest common divisor of all strides apart lie in no more than so many banks.

    Args:
        threads: threads of a block along each axis, innermost first.
        strides: words between neighbouring threads' reads along each axis; 0 where they read the same.
        width: words that each thread reads at once.
    """
    left, apart = np.full_like(width, _WARP), np.zeros_like(width)
    positions = np.ones_like(width)
    cycles = np.ones(len(width))
    for along, stride in zip(threads, strides, strict=True):
        lanes = np.minimum(along, left)
        left = np.maximum(left // lanes, 1)
        distinct = np.where(stride > 0, lanes, 1)
        positions, apart = positions * distinct, np.where(distinct > 1, np.gcd(apart, stride), apart)
        for count, step in ((distinct, stride), (positions, apart)):
            banks = np.where(count > 1, np.minimum(_BANKS, width * (_BANKS // np.gcd(step, _BANKS))), width)
            cycles = np.maximum(cycles, np.ceil(count * width / banks))
    return cycles
