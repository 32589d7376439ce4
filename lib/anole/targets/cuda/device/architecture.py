"""NVIDIA's architectures: their names, and the limits that no kernel exceeds."""

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
    """What one block of threads may take, and how many blocks there may be.

    Attributes:
        warp_size: threads that run in step; a block of fewer leaves lanes idle.
        threads_per_block: at most.
        threads_z: at most, along ``threadIdx.z``.
        shared_bytes_per_block: of memory that is allocated statically.
        registers_per_block: of 32 bits each; a multiprocessor has no more.
        registers_per_thread: what an instruction can name.
        virtual_threads: along one axis, as many as TVM unrolls; accumulators of more are indexed by a loop, which
            takes them out of the registers.
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
        """Returns the limits that `to_json` made plain."""
        return cls(**plain)
