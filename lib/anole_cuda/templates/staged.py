"""The modeled work of a kernel that stages two operands in shared memory and multiplies them in registers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.templates.roofline import Kernel, Numbers, bank_cycles, sectors
from anole_cuda.templates.usage import Counts, Usage

_COPY_INSTRUCTIONS, _STEP_INSTRUCTIONS = 6, 2
"""Instructions of a copy from global to shared memory, address computation included; and of a loop iteration."""

_STEPS_IN_FLIGHT = 4
"""Number of reduction steps whose shared memory reads are in flight simultaneously."""


@dataclass(frozen=True, eq=False)
class Staged:
    """One operand of n configs, from global memory through shared memory to registers; shape (n,) each.

    Attributes:
        values: values of a block's tile in one stage.
        run: contiguous values in global memory.
        lanes: values that one instruction copies.
        reads: values of the tile that one thread reads.
        width: values in one read of a thread.
        strides: values in shared memory between adjacent threads' reads, by axis, innermost first.
        checks: additional instructions of a copy, such as for padding.
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
        stages: number of stages of a block.
        steps: multiply-adds of each accumulator in one stage.
        unrolled: whether a stage is fully unrolled.
    """

    stages: Counts
    steps: Counts
    unrolled: NDArray[np.bool_]


def estimate_registers(accumulators: Counts, copied: Numbers) -> Counts:
    """Estimate the registers that a thread needs, from its accumulators and the values that it copies in a stage.

    The coefficients are fitted to the assembler's counts, which include many prepared copies. Most counts are within
    25 % of this estimate (docs/results/gpu-model.md).
    """
    return np.asarray(30 + 1.1 * accumulators + 0.75 * np.minimum(copied, 256), dtype=np.int64)


def staged_kernel(
    gpu: GpuSpecs,
    usage: Usage,
    thread_axes: Sequence[Counts],
    accumulators: Counts,
    operands: Sequence[Staged],
    reduction: Reduction,
    output_run: Counts,
    fresh_bytes: Numbers,
) -> Kernel:
    """Return the modeled kernels that stage their operands.

    Args:
        gpu: the GPU; values beyond the registers of a thread are spilled.
        usage: the kernels' resources.
        thread_axes: threads of a block along each axis, innermost first.
        accumulators: outputs of one thread.
        operands: both operands.
        reduction: stages and steps.
        output_run: contiguous outputs of a block in global memory.
        fresh_bytes: bytes of both operands and the output that are in memory rather than in the L2 cache.
    """
    threads, stages = usage.threads, reduction.stages
    copies = [np.ceil(operand.values / (operand.lanes * threads)) for operand in operands]
    reads = [operand.reads / operand.width for operand in operands]
    steps, outputs = stages * reduction.steps, accumulators * threads
    needed = estimate_registers(accumulators, _total(operand.values for operand in operands) / threads)
    registers = np.minimum(needed, gpu.max_registers(threads))
    # Spilled values are written and read in every stage, through the same memory pipeline.
    spilled = 2.0 * stages * (needed - registers)
    copying = _total(count * (_COPY_INSTRUCTIONS + op.checks) for count, op in zip(copies, operands, strict=True))
    shared = _total(
        count * operand.lanes + n_reads * bank_cycles(thread_axes, operand.strides, operand.width)
        for count, n_reads, operand in zip(copies, reads, operands, strict=True)
    )
    stepping = np.where(reduction.unrolled, 0, _STEP_INSTRUCTIONS)
    return Kernel(
        blocks=usage.blocks,
        threads=threads,
        registers=registers,
        shared_bytes=usage.shared_bytes,
        multiply_adds=np.asarray(steps * accumulators, dtype=np.float64),
        independent=accumulators,
        instructions=stages * (copying + _total(reads)) + steps * stepping + 2 * accumulators + spilled,
        shared_cycles=stages * shared + spilled,
        shared_waits=steps / _STEPS_IN_FLIGHT,
        sectors=stages * _total(sectors(op.values, op.run) for op in operands) + sectors(outputs, output_run),
        stages=stages + 1.0,
        fresh_bytes=fresh_bytes,
        reused_bytes=fresh_bytes,
    )


def _total(parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(sum(parts))
