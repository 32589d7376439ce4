"""NVIDIA architectures: their names, and the resource limits of every kernel."""

from __future__ import annotations

from dataclasses import dataclass

ARCHITECTURES = (
    *("sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90"),
    *("sm_100", "sm_103", "sm_120", "sm_121"),
)
"""From Volta to Blackwell; all have the same limits for one block of threads."""


@dataclass(frozen=True)
class BlockLimits:
    """Resource limits of one block of threads, and of the grid, as in a description.

    Attributes:
        warp_size: threads that run in lockstep; a smaller block leaves lanes idle.
        shared_bytes_per_block: statically allocated shared memory.
        registers_per_block: 32-bit registers; a multiprocessor has no more.
        registers_per_thread: registers that an instruction can address.
        virtual_threads: virtual threads along one axis that TVM still unrolls; with more, a loop indexes the
            accumulators, which moves them from registers to memory.
    """

    warp_size: int = 32
    threads_per_block: int = 1024
    threads_z: int = 64
    shared_bytes_per_block: int = 48 << 10
    registers_per_block: int = 1 << 16
    registers_per_thread: int = 255
    virtual_threads: int = 15
    grid_x: int = (1 << 31) - 1
    grid_y: int = (1 << 16) - 1
