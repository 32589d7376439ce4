"""NVIDIA architectures: their names, and the limits of every kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

ARCHITECTURES = (
    *("sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90"),
    *("sm_100", "sm_103", "sm_120", "sm_121"),
)
"""From Volta to Blackwell, all of which have the same limits for one block of threads."""


@dataclass(frozen=True)
class BlockLimits:
    """Resource limits of one block of threads, and of the grid.

    Attributes:
        warp_size: threads that run in lockstep; a smaller block leaves lanes idle.
        threads_per_block: the most threads of a block.
        threads_z: the most threads along ``threadIdx.z``.
        shared_bytes_per_block: statically allocated shared memory.
        registers_per_block: registers of 32 bits; a multiprocessor has no more.
        registers_per_thread: registers that an instruction can address.
        virtual_threads: virtual threads along one axis that TVM still unrolls; beyond that, a loop indexes the
            accumulators, which takes them out of the registers.
        grid_x: blocks along ``blockIdx.x``.
        grid_y: blocks along ``blockIdx.y``.
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

    def to_json(self) -> dict[str, int]:
        """Returns the plain form, as in a description."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Returns the limits from the plain form of `to_json`."""
        return cls(**plain)
