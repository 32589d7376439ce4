"""The CPU's templates: any valid config of any workload gives the right result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.record import Config
from anole.targets.cpu.target import CpuTarget
from anole.task import BatchMatmul, Conv2d, Dense, Workload

from ....examples import examples
from . import kernels
from .kernels import PROCESSOR, drawn, text_of
from .workloads import workloads

TARGET = CpuTarget(PROCESSOR)
SLOW_EXAMPLES = settings(
    max_examples=examples(35), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def error_of(workload: Workload, config: Config) -> float:
    return kernels.error_of(TARGET.template(workload), workload, config)


@SLOW_EXAMPLES
@given(workload=workloads, seed=st.integers(0, 1 << 30))
def test_any_valid_config_is_right(workload: Workload, seed: int) -> None:
    assert error_of(workload, drawn(TARGET.space(workload), seed)) < 1e-5


@SLOW_EXAMPLES
@given(workload=workloads)
def test_the_default_config_is_valid(workload: Workload) -> None:
    assert TARGET.space(workload).rejection(TARGET.default_config(workload)) is None


@settings(max_examples=examples(50), deadline=None)
@given(workload=workloads, seed=st.integers(0, 1 << 30))
def test_the_features_describe_every_config_alike(workload: Workload, seed: int) -> None:
    space = TARGET.space(workload)
    vectors = space.sample(5, np.random.default_rng(seed))
    features = space.features(vectors)
    assert features.shape[0] == len(vectors)
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(features[:1], space.features(vectors[:1]))


@pytest.mark.parametrize(
    "workload",
    [
        Conv2d(1, 8, 8, 16, 16, (3, 3), padding=(1, 1, 1, 1), groups=16),
        Conv2d(1, 5, 7, 64, 1, (1, 1)),
        Conv2d(1, 1, 1, 3, 5, (1, 1)),
        Conv2d(1, 9, 9, 3, 33, (7, 7), strides=(2, 2), padding=(3, 3, 3, 3)),
        Dense(1, 512, 1000),
        Dense(3, 1, 1),
        BatchMatmul(1, 1, 1, 1),
        BatchMatmul(2, 19, 8, 19, transpose_right=True),
        # TVM's partition of its tiles would be wrong.
        Conv2d(1, 10, 10, 96, 96, (7, 7), padding=(3, 3, 3, 3), groups=96),
    ],
    ids=lambda workload: workload.label,
)
@pytest.mark.examples(4)
def test_defaults_of_awkward_shapes_are_right(workload: Workload) -> None:
    assert error_of(workload, TARGET.default_config(workload)) < 1e-5


@pytest.mark.parametrize("pack_at", ["inline", "tile", "root"])
def test_products_are_right_wherever_panels_are_packed(pack_at: str) -> None:
    workload = BatchMatmul(2, 12, 20, 64)
    config = {**TARGET.default_config(workload), "pack_at": pack_at}
    assert TARGET.space(workload).rejection(config) is None
    assert error_of(workload, config) < 1e-5


@pytest.mark.parametrize(
    ("workload", "in_place"),
    [
        (BatchMatmul(2, 12, 20, 64), True),
        (BatchMatmul(2, 12, 20, 65), False),
        (BatchMatmul(2, 12, 20, 64, transpose_right=True), False),
    ],
    ids=["whole vectors", "a part of one", "transposed"],
)
def test_only_whole_vectors_are_read_in_place(workload: BatchMatmul, in_place: bool) -> None:
    (pack_at,) = (knob for knob in TARGET.space(workload).knobs if knob.name == "pack_at")
    assert ("inline" in pack_at.values) == in_place


@pytest.mark.parametrize(
    "workload",
    [Conv2d(1, 14, 14, 32, 64, (3, 3), padding=(1, 1, 1, 1)), BatchMatmul(4, 16, 8, 24, transpose_right=True)],
    ids=lambda workload: workload.operator,
)
def test_vectors_and_parallel_loops_are_there(workload: Workload) -> None:
    text = text_of(TARGET.template(workload), workload, TARGET.default_config(workload))
    assert "T.parallel(" in text and "T.vectorized(" in text and "T.unroll(" in text
