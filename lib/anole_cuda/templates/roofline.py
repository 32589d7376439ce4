"""A roofline model of a GPU kernel: it estimates a grid's time from the rates and latencies that can limit it.

This is a model, not a measurement. Multiply-adds, instructions, shared memory, the L2 cache and the memory each have a
maximum rate (Williams et al., "Roofline", CACM 2009). Below these, the work in flight limits a multiprocessor: its
resident warps, and the independent multiply-adds of each (Volkov, "Understanding Latency Hiding on GPUs", 2016).
Rounding a grid up to full waves of blocks, and the number of repeated memory reads, follow tritonBLAS (arXiv
2512.04226).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.templates.usage import FLOAT_BYTES, VECTOR, Counts

Numbers = NDArray[Any]
"""One number per config, integer or float, shape (n,)."""

L2_BYTES_PER_CYCLE = 20.0
"""L2 cache bandwidth of one multiprocessor while all load. Jia et al. measured 18 on a V100 (arXiv 1804.06826) and 20
on a T4 (arXiv 1903.07486)."""

MULTIPLY_ADD_CYCLES, SHARED_CYCLES, GLOBAL_CYCLES = 4.0, 24.0, 400.0
"""The latencies of a multiply-add, a shared-memory read, and a stage's global-memory reads with its two
synchronizations. Jia et al. measured the first two; the last is between an L2 cache hit and an L2 cache miss."""

SECTOR_BYTES = 32
"""Size of a sector of global memory; a warp's access transfers every sector that it touches."""

_BANKS = 32
"""Banks of shared memory; each serves one 32-bit word per cycle, to any number of threads."""

_WARP = 32

LAUNCH_S = 2e-6
"""Minimum time of a kernel."""

_COMBINING_EXPONENT = 4.0
"""The exponent that combines limits: limits of similar size add up, and less so with a higher exponent."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """The modeled work of n kernels; shape (n,) each.

    Attributes:
        blocks: blocks of the grid.
        threads: threads of one block.
        registers: registers of one thread.
        shared_bytes: shared memory of one block.
        multiply_adds: multiply-adds of one thread.
        independent: independent multiply-adds of one thread.
        instructions: other instructions of one thread.
        shared_cycles: cycles in which shared memory serves one warp.
        shared_waits: number of waits of a thread for shared memory.
        sectors: sectors of global memory that one block reads and writes.
        stages: number of waits of a block for global memory.
        fresh_bytes: bytes that the entire grid reads and writes at least once.
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


def latency_s(gpu: GpuSpecs, kernel: Kernel) -> Numbers:
    """Return the modeled time of each kernel in seconds, shape (n,)."""
    resident = np.maximum(gpu.resident_blocks(kernel.threads, kernel.registers, kernel.shared_bytes), 1)
    # The multiprocessor with the most blocks finishes last.
    max_blocks = -(-kernel.blocks // gpu.multiprocessors)
    waves = -(-max_blocks // resident)
    multiprocessor_s = (
        _combine(max_blocks * busy_cycles(gpu, kernel), waves * latency_cycles(gpu, kernel)) / gpu.clock_hz
    )
    return LAUNCH_S + _combine(multiprocessor_s, memory_bytes(gpu, kernel) / gpu.memory_bytes_per_s)


def busy_cycles(gpu: GpuSpecs, kernel: Kernel) -> Numbers:
    """Return the cycles for which one block keeps the busiest part of a multiprocessor busy, shape (n,)."""
    warps = -(-kernel.threads // gpu.warp)
    return _combine(
        warps * kernel.multiply_adds * gpu.warp / gpu.lanes,
        warps * (kernel.multiply_adds + kernel.instructions) / gpu.schedulers,
        warps * kernel.shared_cycles,
        kernel.sectors * SECTOR_BYTES / L2_BYTES_PER_CYCLE,
    )


def latency_cycles(gpu: GpuSpecs, kernel: Kernel) -> Numbers:
    """Return the cycles of a block that runs alone on a multiprocessor, which are its latencies, shape (n,)."""
    multiply_add_cycles = np.maximum(gpu.warp * gpu.schedulers / gpu.lanes, MULTIPLY_ADD_CYCLES / kernel.independent)
    waits = kernel.stages * GLOBAL_CYCLES + kernel.shared_waits * SHARED_CYCLES
    return np.asarray(waits + kernel.multiply_adds * multiply_add_cycles + kernel.instructions)


def memory_bytes(gpu: GpuSpecs, kernel: Kernel) -> Numbers:
    """Return the bytes transferred by the memory, shape (n,): each once, plus repeated reads that miss the L2 cache."""
    repeated_bytes = np.maximum(kernel.blocks * kernel.sectors * SECTOR_BYTES - kernel.fresh_bytes, 0.0)
    return np.asarray(kernel.fresh_bytes + repeated_bytes * uncached_share(gpu, kernel.reused_bytes))


def uncached_share(gpu: GpuSpecs, n_bytes: Numbers) -> Numbers:
    """Return the share of the given bytes that does not fit the L2 cache, shape (n,)."""
    return np.asarray(np.maximum(0.0, 1.0 - gpu.l2_bytes / np.maximum(n_bytes, 1.0)))


def speed(gpu: GpuSpecs, *kernels: Kernel) -> Numbers:
    """Return the modeled speed of kernels that run in sequence, in executions per second, shape (n,)."""
    return np.asarray(1.0 / sum(latency_s(gpu, kernel) for kernel in kernels))


def widths(contiguous: Counts) -> Counts:
    """Return the number of values that one instruction may move in contiguous runs of these lengths, shape (n,)."""
    return np.gcd(contiguous, VECTOR)


def sectors(values: Counts, run: Counts) -> NDArray[np.float64]:
    """Return the number of sectors that contain float32 values, shape (n,).

    `run` of the values are contiguous. A run starts at any multiple of its length; if its length is not a multiple
    of a sector's, it touches more sectors.
    """
    run_bytes = FLOAT_BYTES * np.minimum(run, values)
    touched = run_bytes + SECTOR_BYTES - np.gcd(run_bytes, SECTOR_BYTES)
    return np.asarray(values / np.minimum(run, values) * touched / SECTOR_BYTES)


def bank_cycles(threads: Sequence[Counts], strides: Sequence[Counts], width: Counts) -> NDArray[np.float64]:
    """Return the cycles in which shared memory serves one read of a warp, shape (n,).

    A word is 32 bits, one float. Threads that read the same word share it. Reads of different words in the same bank
    conflict; the greatest common divisor of all strides bounds the number of banks in use.

    Args:
        threads: threads of a block along each axis, innermost first.
        strides: words between adjacent threads' reads along each axis; 0 if they read the same word.
        width: words in one read of a thread.
    """
    remaining, stride_gcd = np.full_like(width, _WARP), np.zeros_like(width)
    n_words = np.ones_like(width)
    cycles = np.ones(len(width))
    for extent, stride in zip(threads, strides, strict=True):
        lanes = np.minimum(extent, remaining)
        remaining = np.maximum(remaining // lanes, 1)
        distinct = np.where(stride > 0, lanes, 1)
        n_words, stride_gcd = n_words * distinct, np.where(distinct > 1, np.gcd(stride_gcd, stride), stride_gcd)
        for count, step in ((distinct, stride), (n_words, stride_gcd)):
            banks = np.where(count > 1, np.minimum(_BANKS, width * (_BANKS // np.gcd(step, _BANKS))), width)
            cycles = np.maximum(cycles, np.ceil(count * width / banks))
    return cycles


def _combine(*limits: Numbers) -> Numbers:
    """Combine limits to slightly more than the highest, depending on how close the other limits are, shape (n,)."""
    highest = np.maximum(np.max(limits, axis=0), 1e-30)
    return np.asarray(
        highest * sum((limit / highest) ** _COMBINING_EXPONENT for limit in limits) ** (1 / _COMBINING_EXPONENT)
    )
