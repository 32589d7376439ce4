"""Layers of the papers' networks at their full size, with the configs that are compiled without tuning."""

from __future__ import annotations

import pytest

from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.cuda.templates.winograd_space import winograd_space
from anole.targets.shared.algorithm_names import WINOGRAD
from anole.task import BatchMatmul, Conv2d, Dense, Workload
from anole.testing.gpu_verdict import Engine, Outcome

from ..templates.workloads import LIMITS, TARGET

PADDED = (1, 1, 1, 1)
RESNET = [
    Conv2d(1, 56, 56, 64, 64, (3, 3), padding=PADDED),
    Conv2d(1, 28, 28, 128, 128, (3, 3), padding=PADDED),
    Conv2d(1, 14, 14, 256, 256, (3, 3), padding=PADDED),
    Conv2d(1, 7, 7, 512, 512, (3, 3), padding=PADDED),
]
OTHERS = [
    Conv2d(1, 224, 224, 3, 64, (7, 7), strides=(2, 2), padding=(3, 3, 3, 3)),
    Conv2d(1, 56, 56, 64, 128, (1, 1), strides=(2, 2)),
    Conv2d(1, 27, 27, 64, 192, (5, 5), padding=(2, 2, 2, 2)),
    Conv2d(1, 112, 112, 32, 32, (3, 3), padding=PADDED, groups=32),
    Conv2d(1, 28, 28, 256, 256, (3, 3), padding=PADDED, groups=32),
    Dense(128, 768, 3072),
    BatchMatmul(12, 128, 128, 64),
    BatchMatmul(12, 128, 64, 128, transpose_right=True),
]


def assert_right(pocl: Engine, workload: Workload, config: Config) -> None:
    verdict = pocl.judge(TARGET.template(workload), workload, config)
    assert verdict.outcome is Outcome.RIGHT, (config, verdict)


@pytest.mark.slow
@pytest.mark.parametrize("workload", RESNET + OTHERS, ids=lambda workload: workload.label)
def test_a_layer_of_a_network_is_right(pocl: Engine, workload: Workload) -> None:
    assert_right(pocl, workload, TARGET.default_config(workload))


@pytest.mark.parametrize("workload", [RESNET[0], *(pytest.param(each, marks=pytest.mark.slow) for each in RESNET[1:])])
def test_a_layer_of_resnet_is_right_by_winograd(pocl: Engine, workload: Conv2d) -> None:
    assert_right(pocl, workload, {ALGORITHM: WINOGRAD, **winograd_space(LIMITS, TARGET.gpu, workload).best_drawn})
