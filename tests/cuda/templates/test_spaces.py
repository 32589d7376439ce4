"""The CUDA spaces: they have the papers' sizes, and every rejected config exceeds the named limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.errors import ConfigError
from anole.space import ALGORITHM, Space
from anole.task import Conv2d, Dense, Workload
from anole_cuda.device.architecture import BlockLimits
from anole_cuda.target import CudaTarget
from anole_cuda.templates.conv2d_space import conv2d_space
from anole_cuda.templates.winograd_space import output_tiles, winograd_space

from ...examples import examples
from .candidates import (
    LIMITS,
    ONE_OF_EACH,
    TARGET,
    WINOGRAD,
    resource_usage,
    source_of,
    winograd_convolutions,
    workloads,
)

PADDED = (1, 1, 1, 1)
SMALL = BlockLimits(
    threads_per_block=96,
    threads_z=3,
    shared_bytes_per_block=1500,
    registers_per_block=1500,
    registers_per_thread=30,
    virtual_threads=4,
    grid_x=20,
    grid_y=6,
)
"""A device on which small workloads exceed every limit."""

SMALL_FOR_WINOGRAD = replace(SMALL, threads_z=1, registers_per_block=2500, registers_per_thread=40, grid_x=100)
"""A device on which small Winograd workloads exceed limits."""

EXAMPLES = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(
    ("make", "workload", "size"),
    [
        (conv2d_space, Conv2d(1, 224, 224, 3, 64, (7, 7), strides=(2, 2), padding=(3, 3, 3, 3)), 79_027_200),
        (conv2d_space, Conv2d(1, 56, 56, 64, 64, (3, 3), padding=PADDED), 90_316_800),
        (conv2d_space, Conv2d(1, 28, 28, 128, 128, (3, 3), padding=PADDED), 36_864_000),
        (conv2d_space, Conv2d(1, 7, 7, 512, 512, (3, 3), padding=PADDED), 844_800),
        (winograd_space, Conv2d(1, 224, 224, 64, 64, (3, 3), padding=PADDED), 2_773_008),
        (winograd_space, Conv2d(1, 56, 56, 64, 64, (3, 3), padding=PADDED), 2_328_480),
        (winograd_space, Conv2d(1, 28, 28, 128, 128, (3, 3), padding=PADDED), 2_937_600),
        (winograd_space, Conv2d(1, 14, 14, 256, 256, (3, 3), padding=PADDED), 1_657_260),
        (winograd_space, Conv2d(1, 7, 7, 512, 512, (3, 3), padding=PADDED), 924_000),
    ],
    ids=lambda value: getattr(value, "label", getattr(value, "__name__", str(value))),
)
def test_spaces_have_the_expected_sizes(make: Callable[..., Space], workload: Conv2d, size: int) -> None:
    assert len(make(LIMITS, TARGET.gpu, workload)) == size


def test_knobs_have_the_papers_names_and_agents() -> None:
    space = conv2d_space(LIMITS, TARGET.gpu, ONE_OF_EACH["conv2d"])
    assert space.names_of("spatial") == ["tile_f", "tile_y", "tile_x"]
    assert space.names_of("reduction") == ["tile_rc", "tile_ry", "tile_rx"]
    assert space.names_of("") == ["auto_unroll_max_step", "unroll_explicit"]


@EXAMPLES
@given(workload=workloads | winograd_convolutions)
def test_the_default_of_every_algorithm_is_valid_on_any_device(workload: Workload) -> None:
    for limits in (LIMITS, replace(SMALL, grid_x=1 << 20, grid_y=1 << 10)):
        target = target_of(limits)
        assert target.space(workload).rejection(target.default_config(workload)) is None
        # Some layers' transforms do not fit the small device.
        if limits is LIMITS and ALGORITHM in target.default_config(workload):
            by_winograd = winograd_space(limits, TARGET.gpu, workload)
            assert by_winograd.rejection(by_winograd.best_sampled) is None


@EXAMPLES
@given(workload=workloads | winograd_convolutions, seed=st.integers(0, 1 << 30))
def test_features_do_not_depend_on_the_other_configs(workload: Workload, seed: int) -> None:
    space = TARGET.space(workload)
    vectors = space.sample(5, np.random.default_rng(seed))
    features = space.features(vectors)
    assert features.shape == (len(vectors), len(space.feature_names))
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(features[:1], space.features(vectors[:1]))


def target_of(limits: BlockLimits) -> CudaTarget:
    return CudaTarget({**TARGET.description, "limits": asdict(limits)})


of_any_algorithm = st.tuples(workloads, st.just(SMALL), st.just({}))
of_winograd = st.tuples(winograd_convolutions, st.just(SMALL_FOR_WINOGRAD), st.just({ALGORITHM: ["winograd"]}))


@settings(EXAMPLES, max_examples=examples(90))
@given(sampled=of_any_algorithm | of_winograd, seed=st.integers(0, 1 << 30))
def test_rejected_configs_exceed_the_named_limit(
    sampled: tuple[Workload, BlockLimits, dict[str, list[str]]], seed: int
) -> None:
    workload, limits, restriction = sampled
    target = target_of(limits)
    space = target.space(workload).restrict(restriction)
    config = space.config(space.vectors(np.random.default_rng(seed).integers(0, space.size, 1))[0])
    reason, taken = space.rejection(config), resource_usage(target, workload, config)
    exceeded = {name for name, (amount, limit) in taken.items() if amount > limit}
    if reason is None:
        assert not exceeded
    elif "twice as many tiles" in reason:
        assert prod(config["tile_p"]) >= 2 * output_tiles(workload, config).count
    elif "without waiting for its lanes" in reason:  # see test_gemv.py
        assert isinstance(workload, Dense)
    elif found := re.search(r"fewer than (\d+) threads", reason):
        assert taken["a block has too many threads"][0] < int(found[1])
    else:
        assert reason.partition(";")[0] in exceeded


@pytest.mark.parametrize(
    ("make", "limits", "count", "never_exceeded"),
    [
        (conv2d_space, replace(SMALL, grid_y=40), 9, set()),
        (
            winograd_space,
            replace(SMALL_FOR_WINOGRAD, grid_x=60, grid_y=40),
            8 + 8 + 2,
            {
                "a block has too many threads along z",
                "the transforms: a block has too many threads",
                "the transforms: a block has too many threads along z",
                "the transforms: too many bytes of shared memory",
                "the transforms: too many virtual threads along an axis",
                "the transforms: too many blocks along y",
            },
        ),
    ],
    ids=["direct", "winograd"],
)
def test_every_limit_that_can_be_exceeded_rejects_configs(
    make: Callable[..., Space], limits: BlockLimits, count: int, never_exceeded: set[str]
) -> None:
    space = make(limits, TARGET.gpu, Conv2d(2, 14, 14, 32, 64, (3, 3), padding=PADDED))
    columns = space.columns(space.vectors(np.random.default_rng(0).integers(0, space.size, 4096)))
    share = {constraint.reason: float(constraint.holds(columns).mean()) for constraint in space.constraints}
    assert len(share) == count
    assert all(held > 0 for held in share.values())
    assert {reason.partition(";")[0] for reason, held in share.items() if held == 1} == never_exceeded


@pytest.mark.parametrize("amount", [15, 16])
def test_virtual_threads_within_the_limit_are_unrolled(amount: int) -> None:
    workload = Conv2d(1, 4, 240, 8, 32, (1, 1))
    config = {
        **{"tile_f": [1, 2, 16, 1], "tile_y": [2, 1, 2, 1], "tile_x": [240 // amount, amount, 1, 1]},
        **{"tile_rc": [4, 2], "tile_ry": [1, 1], "tile_rx": [1, 1]},
        **{"auto_unroll_max_step": 0, "unroll_explicit": 0},
    }
    is_unrolled = "int vthread" not in source_of(workload, config)
    assert is_unrolled == (amount <= LIMITS.virtual_threads)
    assert is_unrolled == (TARGET.space(workload).rejection(config) is None)


def test_a_workload_that_does_not_fit_a_device_is_reported() -> None:
    with pytest.raises(ConfigError, match="no config of this workload"):
        target_of(replace(SMALL, grid_x=1, threads_per_block=1)).default_config(Conv2d(3, 4, 4, 4, 4, (1, 1)))


@pytest.mark.parametrize(
    ("change", "allows_winograd"),
    [
        ({}, True),
        ({"padding": (0, 1, 2, 3), "batch": 3}, True),
        ({"kernel": (1, 1)}, False),
        ({"kernel": (5, 5)}, False),
        ({"strides": (1, 2)}, False),
        ({"dilation": (2, 2)}, False),
        ({"groups": 2}, False),
        ({"in_channels": 1, "out_channels": 1}, False),
        ({"exact": True}, False),
    ],
    ids=str,
)
def test_only_suitable_convolutions_have_a_choice_of_winograd(change: dict[str, Any], allows_winograd: bool) -> None:
    workload = replace(WINOGRAD, **change)
    space, default = TARGET.space(workload), TARGET.default_config(workload)
    assert space.algorithms == (("direct", "winograd") if allows_winograd else ("",))
    assert (ALGORITHM in default) is allows_winograd and space.rejection(default) is None
