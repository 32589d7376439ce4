"""A well-known GPU of each architecture and its multiprocessors: NVIDIA's specifications, not measurements.

They are not part of a target's description: changing them may change the analytical model, but no measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_KIB, _MIB = 1 << 10, 1 << 20

Count = int | NDArray[np.int64]
"""An integer, or one per config, shape (n,)."""


@dataclass(frozen=True)
class GpuSpecs:
    """The specifications of a GPU, and from `lanes` on, of one of its multiprocessors.

    Attributes:
        name: the name of the GPU that represents its architecture.
        multiprocessors: number of multiprocessors.
        clock_hz: boost clock, in cycles per second.
        memory_bytes_per_s: memory bandwidth.
        l2_bytes: size of the L2 cache.
        lanes: float32 multiply-adds that start per cycle.
        warps: maximum number of resident warps.
        blocks: maximum number of resident blocks.
        shared_bytes: shared memory for all resident blocks.
        reserved_bytes: shared memory of each block that the system reserves.
        shared_unit_bytes: allocation unit of shared memory for a block.
        registers: number of 32-bit registers.
        thread_registers: maximum number of registers that a thread can address.
        register_unit: allocation unit of registers for a warp.
        schedulers: instructions of different warps that start per cycle.
        warp: threads of a warp.
    """

    name: str
    multiprocessors: int
    clock_hz: float
    memory_bytes_per_s: float
    l2_bytes: int
    lanes: int
    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int = _KIB
    shared_unit_bytes: int = 128
    registers: int = 1 << 16
    thread_registers: int = 255
    register_unit: int = 256
    schedulers: int = 4
    warp: int = 32

    @classmethod
    def of(cls, arch: str) -> GpuSpecs:
        """Return the GPU that represents an architecture, such as ``sm_90``."""
        return _SPECS[arch]

    @property
    def peak_flops(self) -> float:
        """Peak speed of the entire GPU, in floating-point operations per second."""
        return 2.0 * self.multiprocessors * self.lanes * self.clock_hz

    def resident_blocks(self, threads: Count, registers: Count, shared_bytes: Count) -> Count:
        """Return the number of resident blocks of a multiprocessor, computed as in NVIDIA's occupancy calculator.

        `registers` are per thread, `threads` and `shared_bytes` per block.
        """
        warps = -(-np.asarray(threads) // self.warp)
        warp_registers = -(-np.asarray(registers) * self.warp // self.register_unit) * self.register_unit
        # A warp's registers are allocated in the partition of one scheduler.
        warps_by_registers = self.registers // self.schedulers // np.maximum(warp_registers, 1) * self.schedulers
        shared = -(-(np.asarray(shared_bytes) + self.reserved_bytes) // self.shared_unit_bytes) * self.shared_unit_bytes
        by_shared = self.shared_bytes // np.maximum(shared, 1)
        resident = np.minimum(np.minimum(self.warps, warps_by_registers) // warps, np.minimum(self.blocks, by_shared))
        return resident if resident.ndim else int(resident)

    def max_registers(self, threads: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the maximum number of registers per thread with which a block of `threads` still fits, shape (n,)."""
        scheduler_warps = -(-threads // (self.warp * self.schedulers))
        warp_registers = self.registers // self.schedulers // scheduler_warps // self.register_unit * self.register_unit
        return np.minimum(self.thread_registers, warp_registers // self.warp)


# Multiprocessors: CUDA C++ Programming Guide 13, "Technical Specifications per Compute Capability" and "Throughput of
# Native Arithmetic Instructions", the former as in CCCL's cuda/__device/arch_traits.h; allocation units: NVIDIA's
# occupancy calculator; GPUs: NVIDIA's data sheets and white papers.
_SPECS = {
    "sm_70": GpuSpecs("V100 SXM2", 80, 1.53e9, 900e9, 6 * _MIB, 64, 64, 32, 96 * _KIB, 0, 256),
    "sm_72": GpuSpecs("Jetson AGX Xavier", 8, 1.377e9, 137e9, _MIB // 2, 64, 64, 32, 96 * _KIB, 0, 256),
    "sm_75": GpuSpecs("T4", 40, 1.59e9, 320e9, 4 * _MIB, 64, 32, 16, 64 * _KIB, 0, 256),
    "sm_80": GpuSpecs("A100 SXM4", 108, 1.41e9, 1555e9, 40 * _MIB, 64, 64, 32, 164 * _KIB),
    "sm_86": GpuSpecs("RTX 3090", 82, 1.695e9, 936e9, 6 * _MIB, 128, 48, 16, 100 * _KIB),
    "sm_87": GpuSpecs("Jetson AGX Orin", 16, 1.3e9, 205e9, 4 * _MIB, 128, 48, 16, 164 * _KIB),
    "sm_89": GpuSpecs("RTX 4090", 128, 2.52e9, 1008e9, 72 * _MIB, 128, 48, 24, 100 * _KIB),
    "sm_90": GpuSpecs("H100 SXM5", 132, 1.98e9, 3350e9, 50 * _MIB, 128, 64, 32, 228 * _KIB),
    "sm_100": GpuSpecs("B200", 148, 1.965e9, 7700e9, 126 * _MIB, 128, 64, 32, 228 * _KIB),
    "sm_103": GpuSpecs("B300", 148, 1.92e9, 7700e9, 126 * _MIB, 128, 64, 32, 228 * _KIB),
    "sm_120": GpuSpecs("RTX 5090", 170, 2.407e9, 1792e9, 96 * _MIB, 128, 48, 24, 100 * _KIB),
    "sm_121": GpuSpecs("GB10", 48, 2.418e9, 273e9, 24 * _MIB, 128, 48, 24, 100 * _KIB),
}
