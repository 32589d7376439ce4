"""The CUDA templates on an emulated GPU: any valid config is right and free of races, and its source is as asked."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.cuda.device.builder import source
from anole.targets.shared.kernel import define
from anole.task import Conv2d, Dense, Workload
from tests.kit.emulated_gpu.programs import candidate_error
from tests.kit.emulated_gpu.worker import EmulatedGpu
from tests.kit.gpu_resources import resources

from ....examples import examples
from .workloads import ONE_OF_EACH, TARGET, workloads

SLOW_EXAMPLES = settings(
    max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def source_of(workload: Workload, config: Config) -> str:
    template = TARGET.template(workload)
    return source(template.schedule(define(template, workload, config), workload, config), TARGET.description)


def drawn(workload: Workload, n: int, seed: int = 0) -> list[Config]:
    space = TARGET.space(workload)
    return [space.config(vector) for vector in space.sample(n, np.random.default_rng(seed))]


@SLOW_EXAMPLES
@given(workload=workloads, seed=st.integers(0, 1 << 30))
def test_any_valid_config_is_right(workload: Workload, seed: int, emulated_gpu: EmulatedGpu) -> None:
    (config,) = drawn(workload, 1, seed)
    assert emulated_gpu.call(candidate_error, TARGET.description, workload, config) < 1e-5


@pytest.mark.slow
@settings(SLOW_EXAMPLES, max_examples=examples(400))
@given(workload=workloads, seed=st.integers(0, 1 << 30))
def test_any_valid_config_of_many_more_is_right(workload: Workload, seed: int, emulated_gpu: EmulatedGpu) -> None:
    (config,) = drawn(workload, 1, seed)
    assert emulated_gpu.call(candidate_error, TARGET.description, workload, config) < 1e-5


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
def test_defaults_are_right(workload: Workload, emulated_gpu: EmulatedGpu) -> None:
    config = TARGET.default_config(workload)
    assert TARGET.space(workload).rejection(config) is None
    assert emulated_gpu.call(candidate_error, TARGET.description, workload, config) < 1e-5


@pytest.mark.examples(2)
@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_the_source_binds_what_was_asked_for(kind: str) -> None:
    workload = ONE_OF_EACH[kind]
    config, template = TARGET.default_config(workload), TARGET.template(workload)
    text = source_of(workload, config)
    script = template.schedule(define(template, workload, config), workload, config).script()
    found = re.findall(r'T\.thread_binding\((\d+), thread="((?:block|thread)Idx\.[xyz])"', script)
    bound = {axis: int(extent) for extent, axis in found}
    assert all(f"(int){axis}" in text for axis, extent in bound.items() if extent > 1)
    threads = prod(extent for axis, extent in bound.items() if axis.startswith("thread"))
    assert f"__launch_bounds__({threads})" in text
    assert kind == "gemv" or ("__shared__" in text and "__syncthreads" in text)


def test_the_source_fetches_in_vectors_and_unrolls_as_asked() -> None:
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
@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_kernels_compile_within_the_limits(kind: str) -> None:
    workload = ONE_OF_EACH[kind]
    config = TARGET.default_config(workload)
    taken = resources(source_of(workload, config), TARGET.description["arch"])
    assert 0 < taken.registers <= TARGET.limits.registers_per_thread
    assert taken.shared_bytes <= TARGET.limits.shared_bytes_per_block
    assert taken.local_bytes == 0


@pytest.mark.parametrize("kind", ONE_OF_EACH)
@pytest.mark.examples(1)
def test_builds_a_library_without_a_gpu(kind: str, tmp_path: Path) -> None:
    workload = ONE_OF_EACH[kind]
    TARGET.build(workload, TARGET.default_config(workload), tmp_path / "kernel.so")
    assert (tmp_path / "kernel.so").stat().st_size > 0
