"""The modeled speed of CUDA kernels: nothing exceeds the peak, and additional work is never faster."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.space import ALGORITHM
from anole.task import Conv2d, Dense, Workload
from anole_cuda.device.architecture import ARCHITECTURES
from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget
from anole_cuda.templates.algorithms import default_config
from anole_cuda.templates.conv2d_space import conv2d_kernel, conv2d_space
from anole_cuda.templates.product_space import product_kernel
from anole_cuda.templates.roofline import Kernel, bank_cycles, latency_s, sectors, speed
from anole_cuda.templates.winograd_space import winograd_space

from ...examples import examples
from .candidates import LIMITS, ONE_OF_EACH, TARGET, workloads

EXAMPLES = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
COSTS = (
    *("registers", "shared_bytes", "multiply_adds", "instructions", "shared_cycles", "shared_waits"),
    *("sectors", "stages", "fresh_bytes", "reused_bytes"),
)
"""Costs of a kernel: increasing one never makes it faster."""


def one(value: float) -> np.ndarray:
    return np.array([value])


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """Return any kernel, as arrays of one element."""
    amounts = st.floats(0, 1e5)
    multiply_adds = draw(st.integers(1, 100_000))
    return Kernel(
        blocks=one(draw(st.integers(1, 10_000))),
        threads=one(draw(st.integers(1, 1024))),
        registers=one(draw(st.integers(16, 255))),
        shared_bytes=one(draw(st.integers(0, 48 << 10))),
        multiply_adds=one(float(multiply_adds)),
        independent=one(draw(st.integers(1, 256))),
        **{name: one(draw(amounts)) for name in ("instructions", "shared_cycles", "shared_waits", "sectors", "stages")},
        fresh_bytes=one(draw(st.floats(0, 1e9))),
        reused_bytes=one(draw(st.floats(0, 1e9))),
    )


gpus = st.sampled_from(ARCHITECTURES).map(GpuSpecs.of)


@EXAMPLES
@given(gpu=gpus, kernel=kernels())
def test_nothing_is_faster_than_the_peak_or_the_memory(gpu: GpuSpecs, kernel: Kernel) -> None:
    (time_s,) = latency_s(gpu, kernel)
    flop = 2.0 * kernel.blocks * kernel.threads * kernel.multiply_adds
    assert np.isfinite(time_s) and time_s > 0
    assert flop[0] / time_s <= gpu.peak_flops
    assert kernel.fresh_bytes[0] / time_s <= gpu.memory_bytes_per_s


@EXAMPLES
@given(gpu=gpus, kernel=kernels(), name=st.sampled_from(COSTS), factor=st.integers(1, 20))
def test_additional_costs_are_never_faster(gpu: GpuSpecs, kernel: Kernel, name: str, factor: int) -> None:
    costlier = replace(kernel, **{name: getattr(kernel, name) * factor})
    assert latency_s(gpu, costlier)[0] >= latency_s(gpu, kernel)[0] * (1 - 1e-12)


@EXAMPLES
@given(gpu=gpus, kernel=kernels(), factor=st.integers(1, 20))
def test_more_multiprocessors_are_never_slower(gpu: GpuSpecs, kernel: Kernel, factor: int) -> None:
    larger = replace(gpu, multiprocessors=gpu.multiprocessors * factor)
    assert latency_s(larger, kernel)[0] <= latency_s(gpu, kernel)[0]


def test_few_resident_warps_leave_latencies_uncovered() -> None:
    """By Little's law, one resident block is slower than eight with the same amount of work."""
    gpu = GpuSpecs.of("sm_80")
    kernel = product_kernel(gpu, *_gemm())
    crowded = replace(kernel, shared_bytes=np.full_like(kernel.shared_bytes, 160 << 10))
    assert latency_s(gpu, crowded)[0] > 1.2 * latency_s(gpu, kernel)[0]


def test_the_times_of_two_kernels_add_up() -> None:
    gpu = GpuSpecs.of("sm_80")
    kernel = product_kernel(gpu, *_gemm())
    np.testing.assert_allclose(speed(gpu, kernel, kernel), speed(gpu, kernel) / 2)


@pytest.mark.parametrize(
    ("threads", "strides", "width", "cycles"),
    [
        ((32,), (0,), 1, 1),  # all read one word
        ((32,), (1,), 1, 1),
        ((32,), (2,), 1, 2),
        ((32,), (3,), 1, 1),  # odd strides do not conflict
        ((32,), (32,), 1, 32),
        ((8, 4), (0, 32), 1, 4),
        ((8, 4), (1, 8), 1, 1),
        ((32,), (4,), 4, 4),  # 128 words
        ((32,), (8,), 4, 8),  # 128 words in half of the banks
        ((4, 4), (1, 0), 1, 1),
        ((1, 1, 32), (7, 7, 64), 1, 32),
    ],
)
def test_bank_conflicts_are_counted(
    threads: tuple[int, ...], strides: tuple[int, ...], width: int, cycles: int
) -> None:
    found = bank_cycles([one(count) for count in threads], [one(stride) for stride in strides], one(width))
    assert found.tolist() == [cycles]


@EXAMPLES
@given(threads=st.integers(1, 64), stride=st.integers(1, 100))
def test_conflicts_along_one_axis_agree_with_the_banks(threads: int, stride: int) -> None:
    words = np.arange(min(threads, 32)) * stride
    assert bank_cycles([one(threads)], [one(stride)], one(1))[0] == np.bincount(words % 32).max()


@pytest.mark.parametrize(
    ("values", "run", "count"), [(8, 8, 1), (64, 8, 8), (64, 64, 8), (64, 1, 64), (64, 4, 16), (12, 12, 2), (8, 99, 1)]
)
def test_sectors_are_counted(values: int, run: int, count: int) -> None:
    assert sectors(one(values), one(run))[0] == count


@given(values=st.integers(1, 10_000), run=st.integers(1, 10_000))
def test_sectors_have_at_least_the_bytes_of_the_values(values: int, run: int) -> None:
    assert values * 4 / 32 <= sectors(one(values), one(run))[0] <= values


def test_values_beyond_the_registers_are_spilled() -> None:
    gpu = GpuSpecs.of("sm_80")
    small = replace(gpu, registers=gpu.registers // 16)
    full, spilling = (product_kernel(each, *_gemm()) for each in (gpu, small))
    assert small.resident_blocks(128, int(spilling.registers[0]), 0) == 1
    assert spilling.registers[0] < full.registers[0] and spilling.instructions[0] > full.instructions[0]


@EXAMPLES
@given(workload=workloads, seed=st.integers(0, 1 << 30), arch=st.sampled_from(ARCHITECTURES))
def test_every_valid_config_has_a_speed(workload: Workload, seed: int, arch: str) -> None:
    target = CudaTarget(describe_cuda(arch))
    space = target.space(workload)
    assert space.merit is not None and space.merit_is_speed
    speeds = space.merit(space.columns(space.sample(20, np.random.default_rng(seed))))
    assert np.isfinite(speeds).all() and (speeds > 0).all()


@pytest.mark.parametrize("kind", ONE_OF_EACH)
@pytest.mark.examples(2)
def test_the_default_is_among_the_fastest_by_the_model(kind: str) -> None:
    workload = ONE_OF_EACH[kind]
    default, space = TARGET.default_config(workload), TARGET.space(workload)
    if ALGORITHM in default:
        space = space.restrict({ALGORITHM: [default[ALGORITHM]]})
    sampled = space.merit(space.columns(space.sample(500, np.random.default_rng(1))))
    assert (sampled <= space.merit_of(default)).mean() > 0.98


@EXAMPLES
@given(workload=workloads.filter(lambda each: isinstance(each, Conv2d) and each.groups == 1), seed=st.integers(0, 99))
def test_a_convolution_has_the_defined_number_of_multiply_adds(workload: Conv2d, seed: int) -> None:
    space = conv2d_space(LIMITS, TARGET.gpu, workload)
    kernel = conv2d_kernel(TARGET.gpu, workload, space.columns(space.sample(5, np.random.default_rng(seed))))
    assert (2 * kernel.blocks * kernel.threads * kernel.multiply_adds == workload.flop).all()
    data = workload.batch * workload.height * workload.width * workload.in_channels
    assert {each.name for each in fields(kernel)} >= set(COSTS) and (kernel.fresh_bytes >= 4 * data).all()


def test_winograd_is_the_default_only_where_it_is_clearly_faster() -> None:
    same = (1, 1, 1, 1)
    deep, flat = Conv2d(1, 14, 14, 256, 256, (3, 3), padding=same), Conv2d(1, 257, 128, 64, 2, (3, 3), padding=same)
    gpu = GpuSpecs.of("sm_70")
    assert default_config(LIMITS, gpu, deep)[ALGORITHM] == "winograd"
    assert default_config(LIMITS, gpu, flat)[ALGORITHM] == "direct"
    for workload, gains in ((deep, True), (flat, False)):
        direct, winograd = (make(LIMITS, gpu, workload) for make in (conv2d_space, winograd_space))
        assert (winograd.merit_of(winograd.best_sampled) > direct.merit_of(direct.best_sampled)) == gains


def _gemm() -> tuple[Dense, dict[str, np.ndarray]]:
    workload = Dense(512, 512, 512)
    config = {"tile_y": [16, 1, 8, 4], "tile_x": [16, 1, 16, 2], "tile_k": [64, 8]}
    columns = {name: np.array([split]) for name, split in config.items()}
    return workload, {**columns, "auto_unroll_max_step": one(512), "unroll_explicit": one(0)}
