"""A roofline of a kernel on a GPU: how long its grid takes at least by everything that can limit it.

This is a model, not a measurement. Multiply-adds, instructions, shared memory, the L2 cache and the memory each have a
rate that nothing exceeds (Williams et al., "Roofline", CACM 2009). Below these, what is in flight limits a
multiprocessor: its resident warps, and the independent multiply-adds of each (Volkov, "Understanding Latency Hiding on
GPUs", 2016). That a grid is whole waves of blocks, and how often memory is read again, follows tritonBLAS
(arXiv 2512.04226).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole_cuda.device.multiprocessor import Multiprocessor
from anole_cuda.templates.usage import FLOAT_BYTES, VECTOR, Counts

Numbers = NDArray[Any]
"""A number for each of n configs, whole or not, shape (n,)."""

L2_BYTES_PER_CYCLE = 20.0
"""What a multiprocessor gets from the L2 cache in a cycle while all of them ask. Jia et al. measured 18 on a V100
(arXiv 1804.06826) and 20 on a T4 (arXiv 1903.07486)."""

MULTIPLY_ADD_CYCLES, SHARED_CYCLES, GLOBAL_CYCLES = 4.0, 24.0, 400.0
"""Latencies: of a multiply-add, of a read of shared memory, and of a stage's reads of global memory with its two
synchronizations. The first two as Jia et al. measured them; the last lies between a hit and a miss of the L2 cache."""

SECTOR_BYTES = 32
"""Global memory is read and written in sectors; a warp's access moves every sector that it touches."""

_BANKS = 32
"""Banks of shared memory; each serves one word of 32 bits in a cycle, to any number of threads."""

_WARP = 32

LAUNCH_S = 2e-6
"""What a kernel takes at least."""

_SHARPNESS = 4.0
"""Limits that are equally near slow a kernel down together; the higher the power, the less so."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """What n kernels do; shape (n,) each.

    Attributes:
        blocks: blocks of the grid.
        threads: threads of one block.
        registers: registers of one thread.
        shared_bytes: shared memory of one block.
        multiply_adds: multiply-adds of one thread.
        independent: multiply-adds of one thread that need not wait for each other.
        instructions: other instructions of one thread.
        shared_cycles: cycles in which shared memory serves one warp.
        shared_waits: how often a thread waits for shared memory.
        sectors: sectors of global memory that one block reads and writes.
        stages: how often a block waits for global memory.
        fresh_bytes: bytes that the whole grid reads and writes at least once.
        reused_bytes: bytes that stay in the L2 cache, if they fit, until they are read again.
    """

    blocks: Counts
    threads: Counts
    registers: Counts
    shared_bytes: Counts
    multiply_adds: Numbers
    independent: Counts
    instructions: Numbers
    shared_cycles: Numbers
    shared_waits: Numbers
    sectors: Numbers
    stages: Numbers
    fresh_bytes: Numbers
    reused_bytes: Numbers


def latency_s(gpu: Multiprocessor, kernel: Kernel) -> Numbers:
    """Return how long each kernel takes by the model, in seconds, shape (n,)."""
    resident = np.maximum(gpu.resident_blocks(kernel.threads, kernel.registers, kernel.shared_bytes), 1)
    # The multiprocessor with the most blocks finishes last.
    most = -(-kernel.blocks // gpu.multiprocessors)
    rounds = -(-most // resident)
    multiprocessor_s = _together(most * busy_cycles(gpu, kernel), rounds * alone_cycles(gpu, kernel)) / gpu.clock_hz
    return LAUNCH_S + _together(multiprocessor_s, memory_bytes(gpu, kernel) / gpu.memory_bytes_per_s)


def busy_cycles(gpu: Multiprocessor, kernel: Kernel) -> Numbers:
    """Return the cycles for which one block keeps the busiest part of a multiprocessor busy, shape (n,)."""
    warps = -(-kernel.threads // gpu.warp)
    return _together(
        warps * kernel.multiply_adds * gpu.warp / gpu.lanes,
        warps * (kernel.multiply_adds + kernel.instructions) / gpu.schedulers,
        warps * kernel.shared_cycles,
        kernel.sectors * SECTOR_BYTES / L2_BYTES_PER_CYCLE,
    )


def alone_cycles(gpu: Multiprocessor, kernel: Kernel) -> Numbers:
    """Return the cycles that one block takes if it has a multiprocessor for itself: its latencies, shape (n,)."""
    each = np.maximum(gpu.warp * gpu.schedulers / gpu.lanes, MULTIPLY_ADD_CYCLES / kernel.independent)
    waits = kernel.stages * GLOBAL_CYCLES + kernel.shared_waits * SHARED_CYCLES
    return np.asarray(waits + kernel.multiply_adds * each + kernel.instructions)


def memory_bytes(gpu: Multiprocessor, kernel: Kernel) -> Numbers:
    """Return the bytes that the memory moves, shape (n,): each once, and again as far as the L2 cache loses them."""
    again = np.maximum(kernel.blocks * kernel.sectors * SECTOR_BYTES - kernel.fresh_bytes, 0.0)
    return np.asarray(kernel.fresh_bytes + again * lost_share(gpu, kernel.reused_bytes))


def lost_share(gpu: Multiprocessor, held_bytes: Numbers) -> Numbers:
    """Return the share of these bytes for which the L2 cache has no room, shape (n,)."""
    return np.asarray(np.maximum(0.0, 1.0 - gpu.l2_bytes / np.maximum(held_bytes, 1.0)))


def speed(gpu: Multiprocessor, *kernels: Kernel) -> Numbers:
    """Return the speed by the model if these kernels run one after the other, in runs per second, shape (n,)."""
    return np.asarray(1.0 / sum(latency_s(gpu, kernel) for kernel in kernels))


def widths(contiguous: Counts) -> Counts:
    """Return how many values one instruction may move in contiguous runs of these lengths, shape (n,)."""
    return np.gcd(contiguous, VECTOR)


def sectors(values: Counts, run: Counts) -> NDArray[np.float64]:
    """Return how many sectors float32 values lie in, shape (n,).

    A run that is no whole number of sectors begins anywhere that a multiple of its length may, and so touches more.

    Args:
        values: their number.
        run: how many of them follow each other without a gap.
    """
    run_bytes = FLOAT_BYTES * np.minimum(run, values)
    touched = run_bytes + SECTOR_BYTES - np.gcd(run_bytes, SECTOR_BYTES)
    return np.asarray(values / np.minimum(run, values) * touched / SECTOR_BYTES)


def bank_cycles(threads: Sequence[Counts], strides: Sequence[Counts], width: Counts) -> NDArray[np.float64]:
    """Return the cycles in which shared memory serves a warp that reads through it once, shape (n,).

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


def _together(*limits: Numbers) -> Numbers:
    """Return a little more than the highest of several limits, the more the nearer the others are, shape (n,)."""
    highest = np.maximum(np.max(limits, axis=0), 1e-30)
    return np.asarray(highest * sum((each / highest) ** _SHARPNESS for each in limits) ** (1 / _SHARPNESS))
