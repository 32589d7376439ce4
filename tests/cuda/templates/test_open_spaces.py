"""CUDA's open spaces: AutoTVM's sizes, and configs that are correct or fail with the limit that they exceed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from anole.errors import ConfigError
from anole.record import Config
from anole.space import ALGORITHM
from anole.task import Conv2d, Dense, Task, Workload
from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget
from anole_cuda.templates import algorithms
from kit.emulated_gpu.programs import run_candidate
from kit.emulated_gpu.worker import EmulatedGpu

from ...examples import examples
from .candidates import LIMITS, ONE_OF_EACH, TARGET, source_of, workloads

SAME = (1, 1, 1, 1)
OPEN = CudaTarget(describe_cuda("sm_90", space="open"))

LAYER = Conv2d(1, 56, 56, 64, 64, (3, 3), padding=SAME)
NOT_RUNNABLE = {
    "threads": (LAYER, {"tile_f": [1, 1, 64, 1], "tile_y": [2, 1, 28, 1]}, "too many threads; the limit is 1024"),
    "threads along z": (
        Conv2d(1, 112, 112, 4, 4, (1, 1)),
        {"tile_f": [4, 1, 1, 1], "tile_y": [1, 1, 112, 1], "tile_x": [112, 1, 1, 1]},
        "too many threads along z; the limit is 64",
    ),
    "shared memory": (
        LAYER,
        {"tile_y": [1, 1, 1, 56], "tile_x": [1, 1, 1, 56]},
        "bytes of shared memory; the limit is 49152",
    ),
    "lockstep": (Dense(1, 96, 40), {"tile_x": [40, 1, 1], "tile_k": [2, 48, 1]}, "without waiting for its lanes"),
}


@pytest.mark.parametrize(
    ("workload", "size"),
    [
        (LAYER, 90_316_800),
        (Conv2d(1, 224, 224, 64, 64, (3, 3), padding=SAME), 708_083_712),
        (Conv2d(1, 224, 224, 3, 64, (11, 11), (4, 4), (2, 2, 2, 2)), 1_032_192),
    ],
    ids=["ResNet-18", "VGG-16", "AlexNet"],
)
def test_open_spaces_have_autotvms_sizes(workload: Conv2d, size: int) -> None:
    space = OPEN.space(workload)
    assert len(space) == size
    assert not space.constraints and space.merit is None
    assert ALGORITHM not in [knob.name for knob in space.knobs]


@pytest.mark.guard
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(workload=workloads, seed=st.integers(0, 1 << 30))
def test_any_runnable_open_config_is_correct(workload: Workload, seed: int, emulated_gpu: EmulatedGpu) -> None:
    config = next(runnable(workload, seed), None)
    assume(config is not None)
    assert emulated_gpu.call(run_candidate, OPEN.description, workload, config) < 1e-5


def runnable(workload: Workload, seed: int = 0) -> Iterator[Config]:
    """Yield random configs within the limits of a block."""
    space, constrained = OPEN.space(workload), algorithms.space_without_winograd(LIMITS, TARGET.gpu, workload)
    sampled = (space.config(vector) for vector in space.sample(200, np.random.default_rng(seed)))
    return (config for config in sampled if constrained.refusal(config) is None)


@pytest.mark.examples(2)
@pytest.mark.parametrize("workload", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_runnable_configs_have_cuda_source(workload: Workload) -> None:
    for config in islice(runnable(workload), 3):
        assert "__global__" in source_of(workload, config, OPEN)


@pytest.mark.parametrize(("workload", "tiles", "reason"), NOT_RUNNABLE.values(), ids=NOT_RUNNABLE)
def test_configs_that_cannot_run_fail_with_a_reason(
    workload: Workload, tiles: dict[str, list[int]], reason: str, tmp_path: Path
) -> None:
    config = {**OPEN.default_config(workload), **tiles}
    assert OPEN.space(workload).rejection(config) is None
    with pytest.raises(ConfigError, match=reason):
        OPEN.build(workload, config, tmp_path / "kernel.so")


@pytest.mark.parametrize("workload", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
@pytest.mark.examples(4)
def test_the_default_is_the_same_as_in_the_constrained_space(workload: Workload) -> None:
    default = OPEN.default_config(workload)
    assert OPEN.space(workload).rejection(default) is None
    known = TARGET.default_config(workload)
    assert default == {name: value for name, value in known.items() if name != ALGORITHM}


def test_open_tasks_have_separate_keys_and_other_keys_stay() -> None:
    keys = {Task(LAYER, each.description, each.template_version(LAYER)).key for each in (OPEN, TARGET)}
    assert len(keys) == 2 and "space" not in TARGET.description
