"""The CPU's depthwise convolution: any valid config of any shape is right, parallel and vectorised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.target import CpuTarget
from anole.targets.cpu.templates.depthwise import DepthwiseTemplate
from anole.targets.cpu.templates.depthwise_space import channel_lanes, depthwise_space, is_depthwise
from anole.targets.cpu.templates.grouped import GroupedTemplate
from anole.targets.cpu.templates.grouped_space import is_bundled
from anole.task import Conv2d

from ....examples import examples
from .kernels import AVX512, NEON, PROCESSOR, UNIT, drawn, error_of, text_of

TARGET, TEMPLATE = CpuTarget(PROCESSOR), DepthwiseTemplate(UNIT)
SLOW_EXAMPLES = settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@st.composite
def depthwise(draw: st.DrawFn) -> Conv2d:
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    padding = draw(st.tuples(*[st.integers(0, 3)] * 4))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    channels = draw(st.sampled_from([2, 3, 7, 13, 16, 24, 31, 37, 48, 64]))
    return Conv2d(
        batch=draw(st.integers(1, 4)),
        height=max(reach[0] - padding[0] - padding[2], draw(st.integers(1, 13))),
        width=max(reach[1] - padding[1] - padding[3], draw(st.integers(1, 13))),
        in_channels=channels,
        out_channels=channels * draw(st.sampled_from([1, 1, 1, 2, 3])),
        kernel=kernel,
        strides=draw(st.tuples(st.integers(1, 4), st.integers(1, 4))),
        padding=padding,
        dilation=dilation,
        groups=channels,
    )


@SLOW_EXAMPLES
@given(workload=depthwise(), seed=st.integers(0, 1 << 30))
def test_any_valid_config_is_right(workload: Conv2d, seed: int) -> None:
    shared = is_bundled(UNIT, workload)
    assert isinstance(TARGET.template(workload), GroupedTemplate if shared else DepthwiseTemplate)
    assert error_of(TEMPLATE, workload, drawn(depthwise_space(UNIT, 2, workload), seed)) < 1e-5


@settings(max_examples=examples(50), deadline=None)
@given(workload=depthwise(), unit=st.sampled_from([AVX512, NEON]), threads=st.integers(1, 8))
def test_every_space_has_a_valid_default_and_features(workload: Conv2d, unit: VectorUnit, threads: int) -> None:
    space = depthwise_space(unit, threads, workload)
    vectors = space.sample(5, np.random.default_rng(0))
    assert len(vectors) and space.valid(vectors).all()
    assert np.isfinite(space.features(vectors)).all()
    assert workload.out_channels % channel_lanes(unit, workload) == 0
    assert space.rejection(space.best_drawn) is None


@pytest.mark.parametrize(
    ("channels", "unit", "lanes"),
    [(32, AVX512, 16), (24, AVX512, 8), (36, AVX512, 4), (13, AVX512, 13), (34, AVX512, 2 * 17), (13, NEON, 13)],
)
def test_vectors_are_as_wide_as_the_channels_allow(channels: int, unit: VectorUnit, lanes: int) -> None:
    assert channel_lanes(unit, Conv2d(1, 8, 8, channels, channels, (3, 3), groups=channels)) == lanes


def test_only_convolutions_of_single_channels_are_depthwise() -> None:
    assert is_depthwise(Conv2d(1, 8, 8, 4, 8, (3, 3), groups=4))
    assert not is_depthwise(Conv2d(1, 8, 8, 4, 8, (3, 3), groups=2))
    assert not is_depthwise(Conv2d(1, 8, 8, 1, 8, (3, 3)))


@pytest.mark.parametrize(("size", "channels", "stride"), [(112, 32, 1), (112, 96, 2), (14, 384, 1), (7, 960, 1)])
def test_the_defaults_of_a_real_network_are_parallel_vectorised_and_right(
    size: int, channels: int, stride: int
) -> None:
    workload = Conv2d(
        1, size, size, channels, channels, (3, 3), (stride, stride), padding=(1, 1, 1, 1), groups=channels
    )
    config, template = TARGET.default_config(workload), TARGET.template(workload)
    text = text_of(template, workload, config)
    assert "T.parallel(" in text and "T.unroll(" in text
    assert f"T.vectorized({channel_lanes(UNIT, workload)})" in text
    assert error_of(template, workload, config) < 1e-5
