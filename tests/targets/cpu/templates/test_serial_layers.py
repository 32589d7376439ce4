"""Small layers may be computed by one thread, and large ones are shared."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from anole.record import Config
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.task import BatchMatmul, Conv2d, Dense, Workload

TARGET = CpuTarget(describe_cpu("skylake-avx512", threads=2, model="any"))
ONCE = {"padding": (0, 0, 0, 0), "strides": (1, 1), "dilation": (1, 1)}

SMALL = [
    Dense(1, 64, 128),
    BatchMatmul(1, 16, 32, 32),
    Conv2d(1, 8, 8, 16, 32, kernel=(1, 1), groups=1, **ONCE),
    Conv2d(1, 8, 8, 32, 32, kernel=(3, 3), groups=32, **ONCE),
]
LARGE = [
    Dense(1, 128, 512),
    Dense(1, 512, 512),
    BatchMatmul(1, 64, 64, 64),
    Conv2d(1, 28, 28, 64, 64, kernel=(1, 1), groups=1, **ONCE),
    Conv2d(1, 56, 56, 64, 64, kernel=(3, 3), groups=64, **ONCE),
]


def chunks(config: Config) -> int:
    """Returns the pieces that threads share: the outermost parts of all that is split into three."""
    return prod(value[0] for value in config.values() if isinstance(value, list | tuple) and len(value) == 3)


@pytest.mark.parametrize("workload", SMALL)
def test_one_thread_may_do_a_small_layer_and_does_by_default(workload: Workload) -> None:
    assert chunks(TARGET.default_config(workload)) == 1
    space = TARGET.space(workload)
    drawn = space.sample(200, np.random.default_rng(0))
    assert {chunks(space.config(vector)) > 1 for vector in drawn} == {False, True}


@pytest.mark.parametrize("workload", LARGE)
def test_every_thread_has_a_part_of_a_large_one(workload: Workload) -> None:
    space = TARGET.space(workload)
    drawn = space.sample(200, np.random.default_rng(0))
    assert min(chunks(space.config(vector)) for vector in drawn) > 1


def test_the_version_tells_which_layers_one_thread_may_do() -> None:
    small, large = (TARGET.template_version(Dense(1, features, 64)) for features in (64, 1 << 14))
    assert small == large + 1
