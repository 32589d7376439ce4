"""What a kernel does that stages two operands in shared memory and multiplies them in registers, for n configs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole_cuda.device.multiprocessor import Multiprocessor
from anole_cuda.templates.roofline import Kernel, Numbers, bank_cycles, sectors
from anole_cuda.templates.usage import Counts, Usage

_COPYING, _STEPPING = 6, 2
"""Instructions of a copy from global to shared memory, with its addresses; and of a step of a loop that is left."""

_AHEAD = 4
"""Reductions whose reads of shared memory are under way at once."""


@dataclass(frozen=True, eq=False)
class Staged:
    """One operand of n configs, from global memory through shared memory to registers; shape (n,) each.

    Attributes:
        values: values of a block's tile that are staged at once.
        run: values that follow each other in global memory.
        lanes: values that one instruction copies.
        reads: values of the tile that one thread reads.
        width: values that it reads at once.
        strides: values in shared memory between neighbouring threads' reads, by axis, innermost first.
        checks: further instructions of a copy, such as for padding.
    """

    values: Counts
    run: Counts
    lanes: Counts
    reads: Numbers
    width: Counts
    strides: Sequence[Counts]
    checks: int = 0


@dataclass(frozen=True, eq=False)
class Reduction:
    """The reduction of n configs; shape (n,) each.

    Attributes:
        stages: how often a block stages its operands.
        steps: multiply-adds of each accumulator in one stage.
        unrolled: whether no loop is left in a stage.
    """

    stages: Counts
    steps: Counts
    unrolled: NDArray[np.bool_]


def wanted_registers(accumulators: Counts, copied: Numbers) -> Counts:
    """Return an estimate of the registers that a thread has use for, by the values that it copies in a stage.

    The coefficients are fitted to what the assembler gives, which prepares many copies at once; three in five of
    its numbers are within a quarter of this (`benchmarks/cuda/resources.py`).
    """
    return np.asarray(30 + 1.1 * accumulators + 0.75 * np.minimum(copied, 256), dtype=np.int64)


def staged_kernel(
    gpu: Multiprocessor,
    usage: Usage,
    thread_axes: Sequence[Counts],
    accumulators: Counts,
    operands: Sequence[Staged],
    reduction: Reduction,
    output_run: Counts,
    fresh_bytes: Numbers,
) -> Kernel:
    """Return what kernels do that stage their operands.

    Args:
        gpu: values are spilled beyond its registers.
        usage: what they use.
        thread_axes: threads of a block along each axis, innermost first.
        accumulators: outputs of one thread.
        operands: both.
        reduction: stages and steps.
        output_run: outputs of a block that follow each other in global memory.
        fresh_bytes: bytes of both operands and the output, as far as they are in the memory.
    """
    threads, stages = usage.threads, reduction.stages
    copies = [np.ceil(each.values / (each.lanes * threads)) for each in operands]
    reads = [each.reads / each.width for each in operands]
    steps, outputs = stages * reduction.steps, accumulators * threads
    wanted = wanted_registers(accumulators, _total(each.values for each in operands) / threads)
    held = np.minimum(wanted, gpu.max_registers(threads))
    # What is spilled is written and read in every stage, through the same memory pipeline.
    spilled = 2.0 * stages * (wanted - held)
    copying = _total(count * (_COPYING + each.checks) for count, each in zip(copies, operands, strict=True))
    shared = _total(
        count * each.lanes + read * bank_cycles(thread_axes, each.strides, each.width)
        for count, read, each in zip(copies, reads, operands, strict=True)
    )
    stepping = np.where(reduction.unrolled, 0, _STEPPING)
    return Kernel(
        blocks=usage.blocks,
        threads=threads,
        registers=held,
        shared_bytes=usage.shared_bytes,
        multiply_adds=np.asarray(steps * accumulators, dtype=np.float64),
        independent=accumulators,
        instructions=stages * (copying + _total(reads)) + steps * stepping + 2 * accumulators + spilled,
        shared_cycles=stages * shared + spilled,
        shared_waits=steps / _AHEAD,
        sectors=stages * _total(sectors(each.values, each.run) for each in operands) + sectors(outputs, output_run),
        stages=stages + 1.0,
        fresh_bytes=fresh_bytes,
        reused_bytes=fresh_bytes,
    )


def _total(parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(sum(parts))
