"""The local runner of CPU candidates: data is warm, weights come from memory, and missing results are detected.

All kernels with the same weight layout share one set of copies in turns.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anole.record import Config
from anole.targets import get_device
from anole.targets.cpu.device.runner import CpuRunner, WeightCopies
from anole.targets.cpu.settings import describe_cpu
from anole.task import BatchMatmul, Dense

TARGET = get_device(describe_cpu())
WORKLOAD = Dense(1, 256, 64)
WEIGHT_BYTES = 4 * 256 * 64
LAYER = Dense(1, 8, 256)
WEIGHT: NDArray[np.float32] = np.arange(8 * 256, dtype=np.float32).reshape(8, 256)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    TARGET.build(WORKLOAD, TARGET.default_config(WORKLOAD), tmp_path / "kernel.so")
    return tmp_path / "kernel.so"


def runner(cold_bytes: int) -> CpuRunner:
    return CpuRunner(TARGET.template(WORKLOAD), WORKLOAD, cold_bytes)


@pytest.mark.parametrize(("cold_bytes", "copies"), [(0, 1), (3 * WEIGHT_BYTES, 4)])
def test_every_run_reads_the_least_recently_read_copy(artifact: Path, cold_bytes: int, copies: int) -> None:
    kernel = runner(cold_bytes).load(artifact, TARGET.default_config(WORKLOAD))
    weights = [next(kernel._arguments)[1] for _ in range(2 * copies)]
    assert len({id(weight) for weight in weights}) == copies
    assert weights[:copies] == weights[copies:]
    assert max(kernel.relative_error() for _ in range(copies)) < 1e-5


def test_activations_are_warm(tmp_path: Path) -> None:
    product = BatchMatmul(2, 8, 16, 32)
    TARGET.build(product, TARGET.default_config(product), tmp_path / "kernel.so")
    kernel = CpuRunner(TARGET.template(product), product).load(tmp_path / "kernel.so", TARGET.default_config(product))
    first, second = next(kernel._arguments), next(kernel._arguments)
    assert [id(argument) for argument in first] == [id(argument) for argument in second]
    assert kernel.relative_error() < 1e-5


def test_a_kernel_that_writes_nothing_is_wrong(artifact: Path) -> None:
    kernel = runner(0).load(artifact, TARGET.default_config(WORKLOAD))
    kernel._kernel = lambda *arguments: None
    assert np.isnan(kernel.relative_error())


def copies(cold_bytes: int, workload: Dense = LAYER, weight: NDArray[np.float32] = WEIGHT) -> WeightCopies:
    return WeightCopies(TARGET.template(workload), workload, weight, cold_bytes)


def config_of_panel(vectors: int, workload: Dense = LAYER) -> Config:
    """Return a config whose panels are `vectors` registers wide; only its layout matters here."""
    width = vectors * TARGET.unit.lanes
    return {**TARGET.default_config(workload), "tile_x": [workload.out_features // width, 1, width]}


def test_kernels_of_one_layout_take_turns_on_the_same_copies() -> None:
    weights = copies(cold_bytes=2 * WEIGHT.nbytes)
    one, other = weights.of(config_of_panel(2)), weights.of({**config_of_panel(2), "tile_k": [1, 8]})
    read = [id(next(one)), id(next(other)), id(next(one)), id(next(other))]
    assert len(set(read[:3])) == 3
    assert read[3] == read[0]


def test_a_weight_larger_than_the_cache_is_not_read_twice_in_a_row() -> None:
    weights = copies(cold_bytes=WEIGHT.nbytes // 2).of(config_of_panel(2))
    assert next(weights) is not next(weights)


def test_every_layout_is_packed_by_its_template() -> None:
    weights, template = copies(cold_bytes=0), TARGET.template(LAYER)
    for config in (config_of_panel(1), config_of_panel(2), config_of_panel(1)):
        np.testing.assert_array_equal(next(weights.of(config)).numpy(), template.pack_weight(LAYER, config, WEIGHT))


def test_the_memory_for_copies_is_bounded() -> None:
    workload = Dense(1, 512, 1024)
    weights = copies(1 << 30, workload, np.zeros((512, 1024), np.float32))
    first = weights.of(config_of_panel(1, workload))
    assert weights.of(config_of_panel(1, workload)) is first
    weights.of(config_of_panel(2, workload))
    assert weights.of(config_of_panel(1, workload)) is not first
