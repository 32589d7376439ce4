"""CUDA templates on an emulated GPU: valid configs are correct and have no races, and their source is as configured."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.record import Config
from anole.space import ALGORITHM
from anole.task import Conv2d, Dense, Workload
from anole_cuda.device.builder import compile_kernel, skip_compilation
from anole_cuda.templates.winograd_space import THREADS, output_tiles
from kit.emulated_gpu.programs import run_candidate
from kit.emulated_gpu.worker import EmulatedGpu
from kit.gpu_resources import resources_of

from ...examples import examples
from .candidates import (
    KINDS,
    LIMITS,
    ONE_OF_EACH,
    TARGET,
    WINOGRAD,
    by_winograd,
    default_of,
    kernels_of,
    schedule,
    source_of,
    winograd_convolutions,
    workloads,
)

SLOW_EXAMPLES = settings(
    max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
PADDED = (1, 1, 1, 1)


@st.composite
def candidates(draw: st.DrawFn) -> tuple[Workload, Config]:
    """Return a workload of any template with any valid config; a third use Winograd."""
    is_winograd = draw(st.integers(0, 2)) == 0
    workload = draw(winograd_convolutions if is_winograd else workloads)
    space = TARGET.space(workload).restrict({ALGORITHM: ["winograd"]} if is_winograd else {})
    (vector,) = space.sample(1, np.random.default_rng(draw(st.integers(0, 1 << 30))))
    return workload, space.config(vector)


def check(gpu: EmulatedGpu, workload: Workload, config: Config) -> None:
    bound = 3e-5 if config.get(ALGORITHM) == "winograd" else 1e-5
    assert gpu.call(run_candidate, TARGET.description, workload, config) < bound


@SLOW_EXAMPLES
@given(candidate=candidates())
def test_any_valid_config_is_correct(candidate: tuple[Workload, Config], emulated_gpu: EmulatedGpu) -> None:
    check(emulated_gpu, *candidate)


@pytest.mark.slow
@settings(SLOW_EXAMPLES, max_examples=examples(800))
@given(candidate=candidates())
def test_many_more_valid_configs_are_correct(candidate: tuple[Workload, Config], emulated_gpu: EmulatedGpu) -> None:
    check(emulated_gpu, *candidate)


@pytest.mark.parametrize(
    "workload",
    [
        *ONE_OF_EACH.values(),
        Conv2d(1, 5, 7, 64, 1, (1, 1)),
        Conv2d(1, 1, 1, 3, 5, (1, 1)),
        Conv2d(1, 9, 9, 3, 33, (7, 7), strides=(2, 2), padding=(3, 3, 3, 3)),
        Dense(1, 512, 1000),
        Dense(3, 1, 1),
        Dense(37, 1, 1),
    ],
    ids=lambda workload: workload.label,
)
@pytest.mark.examples(3)
def test_defaults_are_correct(workload: Workload, emulated_gpu: EmulatedGpu) -> None:
    config = TARGET.default_config(workload)
    assert TARGET.space(workload).rejection(config) is None
    check(emulated_gpu, workload, config)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    "workload",
    [
        Conv2d(1, 3, 3, 5, 7, (3, 3)),
        Conv2d(1, 1, 1, 1, 2, (3, 3), padding=PADDED),
        Conv2d(2, 1, 9, 3, 2, (3, 3), padding=(2, 0, 1, 2)),
        Conv2d(3, 7, 7, 13, 11, (3, 3), padding=PADDED),
        Conv2d(1, 3, 2, 2, 65, (3, 3), padding=(4, 5, 0, 0)),
    ],
    ids=lambda workload: getattr(workload, "label", str(workload)),
)
@pytest.mark.examples(1)
def test_winograd_is_correct_with_both_tile_sizes(workload: Conv2d, size: int, emulated_gpu: EmulatedGpu) -> None:
    config = by_winograd(workload)
    assert TARGET.space(workload).rejection(config) is None
    check(emulated_gpu, workload, {**config, "tile_size": size})


@pytest.mark.examples(2)
@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_the_source_binds_the_configured_threads(kind: str) -> None:
    workload, config = default_of(kind)
    text, script = source_of(workload, config), schedule(workload, config).script()
    found = re.findall(r'T\.thread_binding\((\d+), thread="((?:block|thread)Idx\.[xyz])"', script)
    bound = {axis: int(extent) for extent, axis in found}
    assert all(f"(int){axis}" in text for axis, extent in bound.items() if extent > 1)
    threads = prod(extent for axis, extent in bound.items() if axis.startswith("thread"))
    assert f"__launch_bounds__({threads})" in text
    assert kind == "gemv" or ("__shared__" in text and "__syncthreads" in text)


def test_the_source_loads_vectors_and_unrolls_as_configured() -> None:
    workload = ONE_OF_EACH["conv2d"]
    config = {
        ALGORITHM: "direct",
        **{"tile_f": [2, 2, 16, 1], "tile_y": [7, 1, 2, 1], "tile_x": [2, 1, 7, 1]},
        **{"tile_rc": [4, 8], "tile_ry": [3, 1], "tile_rx": [1, 3]},
        **{"auto_unroll_max_step": 512, "unroll_explicit": 0},
    }
    hinted = source_of(workload, config)
    explicit = source_of(workload, {**config, "unroll_explicit": 1})
    rolled = source_of(workload, {**config, "auto_unroll_max_step": 0})
    stores = re.findall(r"\*\(float4\*\)\((\w+)_shared_ptr", rolled)
    assert set(stores) == {"pad", "packed"}
    assert "#pragma unroll" in hinted and "#pragma unroll" not in explicit + rolled
    assert explicit.count("for (") < rolled.count("for (")


@pytest.mark.guard
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_compile_within_the_limits(kind: str) -> None:
    taken = resources_of(source_of(*default_of(kind)), TARGET.description["arch"])
    assert 0 < taken.registers <= LIMITS.registers_per_thread
    assert (0 if kind == "gemv" else 1) <= taken.shared_bytes <= LIMITS.shared_bytes_per_block
    assert taken.local_bytes == 0


@pytest.mark.guard
@pytest.mark.parametrize(("size", "bound"), [(2, 2e-6), (4, 1e-5)])
def test_winograd_rounding_errors_of_many_channels_are_small(
    size: int, bound: float, emulated_gpu: EmulatedGpu
) -> None:
    """The measured errors are 0.8e-6 and 2.8e-6, far below the allowed 1e-4."""
    workload = Conv2d(1, 14, 14, 512, 64, (3, 3), padding=PADDED)
    config = by_winograd(workload, tile_size=size)
    assert emulated_gpu.call(run_candidate, TARGET.description, workload, config) < bound


@pytest.mark.parametrize("size", [2, 4])
def test_the_winograd_kernels_bind_the_configured_threads(size: int) -> None:
    config = by_winograd(WINOGRAD, tile_size=size, tile_f=[2, 1, 16, 2], tile_p=[2, 4, 2], auto_unroll_max_step=0)
    data, products, outputs = kernels_of(source_of(WINOGRAD, config))
    for transform in (data, outputs):
        assert f"__launch_bounds__({THREADS})" in transform
        assert "for (" not in transform and "?" not in transform
    assert "__launch_bounds__(64)" in products
    assert re.findall(r"\*\(float4\*\)\((\w+)_shared_ptr", products) == ["winograd_data", "packed"]
    assert "__syncthreads" in products and "bias" not in products
    assert "max(" in outputs


def test_winograds_intermediate_results_are_in_gpu_memory() -> None:
    config = by_winograd(WINOGRAD)
    with skip_compilation():
        host = compile_kernel(schedule(WINOGRAD, config), TARGET.description).mod.inspect_source()
    allocated = re.findall(r"%(\w+) = .*call ptr %\d+\(i32 (\d+), i32 %dev_id, i64 (\d+)", host)
    tiles = output_tiles(WINOGRAD, config)
    sizes = [4 * tiles.points**2 * tiles.axes[0] * channels for channels in (32, 64)]
    names, on_cuda = ("winograd_data", "winograd_product"), str(tvm.cuda().dlpack_device_type())
    assert allocated == [(name, on_cuda, str(size)) for name, size in zip(names, sizes, strict=True)]
