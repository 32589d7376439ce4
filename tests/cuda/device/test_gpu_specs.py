"""Specifications of GPUs: every architecture has plausible ones, and occupancy agrees with NVIDIA's calculator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole_cuda.device.architecture import ARCHITECTURES
from anole_cuda.device.gpu_specs import GpuSpecs

KIB = 1 << 10
architectures = st.sampled_from(ARCHITECTURES)
usages = st.tuples(st.integers(1, 1024), st.integers(1, 255), st.integers(0, 48 * KIB))
"""Threads of a block, registers of a thread and bytes of shared memory."""


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_has_plausible_specifications(arch: str) -> None:
    gpu = GpuSpecs.of(arch)
    assert 0.5e12 < gpu.peak_flops < 200e12
    assert gpu.lanes in (64, 128) and gpu.warps % gpu.schedulers == 0
    assert 48 * KIB <= gpu.shared_bytes - gpu.reserved_bytes
    assert 100e9 < gpu.memory_bytes_per_s < 10e12


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared_bytes", "blocks"),
    [
        ("sm_80", 256, 32, 0, 8),  # 64 warps of 8
        ("sm_80", 256, 64, 0, 4),  # 2048 registers per warp: 8 warps per scheduler
        ("sm_80", 256, 65, 0, 3),  # rounded up to 72 registers: 7 warps per scheduler
        ("sm_80", 32, 32, 0, 32),  # the maximum number of blocks
        ("sm_75", 32, 32, 0, 16),
        ("sm_80", 64, 32, 48 * KIB, 3),  # 49 KiB each, reserved memory included
        ("sm_75", 64, 32, 32 * KIB, 2),  # nothing is reserved
        ("sm_90", 33, 32, 0, 32),  # two warps
        ("sm_86", 1024, 64, 0, 1),
    ],
)
def test_occupancy_agrees_with_the_calculator(
    arch: str, threads: int, registers: int, shared_bytes: int, blocks: int
) -> None:
    assert GpuSpecs.of(arch).resident_blocks(threads, registers, shared_bytes) == blocks


@given(arch=architectures, usage=usages, more=usages)
def test_more_resources_never_increase_occupancy(arch: str, usage: tuple[int, ...], more: tuple[int, ...]) -> None:
    gpu, greedy = GpuSpecs.of(arch), [max(pair) for pair in zip(usage, more, strict=True)]
    assert gpu.resident_blocks(*greedy) <= gpu.resident_blocks(*usage)


@given(arch=architectures, usage=usages)
def test_resident_blocks_fit(arch: str, usage: tuple[int, int, int]) -> None:
    gpu, (threads, registers, shared_bytes) = GpuSpecs.of(arch), usage
    blocks = gpu.resident_blocks(threads, registers, shared_bytes)
    assert blocks * -(-threads // 32) <= gpu.warps and blocks <= gpu.blocks
    assert blocks * threads * registers <= gpu.registers
    assert blocks * shared_bytes <= gpu.shared_bytes
    many = gpu.resident_blocks(np.array([threads]), np.array([registers]), np.array([shared_bytes]))
    assert many.tolist() == [blocks]


@given(arch=architectures, threads=st.integers(1, 1024), parts=st.sampled_from([1, 2, 4]))
def test_a_block_with_the_maximum_of_registers_is_resident(arch: str, threads: int, parts: int) -> None:
    gpu = GpuSpecs.of(arch)
    gpu = replace(gpu, registers=gpu.registers // parts, schedulers=gpu.schedulers // parts)
    maximum = int(gpu.max_registers(np.array([threads]))[0])
    assert gpu.resident_blocks(threads, maximum, 0) >= 1
    assert maximum == gpu.thread_registers or gpu.resident_blocks(threads, maximum + 1, 0) == 0
