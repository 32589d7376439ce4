"""The CPU's templates: any valid config of any workload gives the right result."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.machine import describe_cpu
from anole.targets import get_target
from anole.task import Conv2d, Dense, Workload

TARGET = get_target({**describe_cpu(), "threads": 2})
SLOW_EXAMPLES = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def convolutions(draw: st.DrawFn) -> Conv2d:
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    padding = draw(st.tuples(*[st.integers(0, 2)] * 4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    depthwise = draw(st.booleans()) and groups > 1
    in_channels = groups if depthwise else groups * draw(st.integers(1, 9))
    out_channels = groups if depthwise else groups * draw(st.integers(1, 20))
    return Conv2d(
        batch=draw(st.integers(1, 2)),
        height=max(reach[0] - padding[0] - padding[2], draw(st.integers(1, 13))),
        width=max(reach[1] - padding[1] - padding[3], draw(st.integers(1, 13))),
        in_channels=in_channels,
        out_channels=out_channels,
        kernel=kernel,
        strides=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding=padding,
        dilation=dilation,
        groups=groups,
    )


dense_layers = st.builds(Dense, st.integers(1, 9), st.integers(1, 40), st.integers(1, 70))


def error_of(workload: Workload, config: dict[str, object]) -> float:
    with TemporaryDirectory() as folder:
        artifact = Path(folder) / "kernel.so"
        TARGET.build(workload, config, artifact)
        return TARGET.runner(workload).load(artifact, config).relative_error()


@SLOW_EXAMPLES
@given(workload=convolutions() | dense_layers, seed=st.integers(0, 1 << 30))
def test_any_valid_config_is_right(workload: Workload, seed: int) -> None:
    space = TARGET.space(workload)
    (vector,) = space.sample(1, np.random.default_rng(seed))
    assert error_of(workload, space.config(vector)) < 1e-5


@SLOW_EXAMPLES
@given(workload=convolutions() | dense_layers)
def test_the_default_config_is_valid(workload: Workload) -> None:
    assert TARGET.space(workload).rejection(TARGET.default_config(workload)) is None


@settings(max_examples=50, deadline=None)
@given(workload=convolutions() | dense_layers, seed=st.integers(0, 1 << 30))
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
    ],
    ids=lambda workload: workload.label,
)
def test_defaults_of_awkward_shapes_are_right(workload: Workload) -> None:
    assert error_of(workload, TARGET.default_config(workload)) < 1e-5


def test_vectors_and_parallel_loops_are_there() -> None:
    workload = Conv2d(1, 14, 14, 32, 64, (3, 3), padding=(1, 1, 1, 1))
    from anole.targets.kernel import define

    config, template = TARGET.default_config(workload), TARGET.template(workload)
    text = template.schedule(define(template, workload, config), workload, config).script()
    assert "T.parallel(" in text and "T.vectorized(" in text and "T.unroll(" in text
