"""The space of Winograd on CUDA: large, and every config that it rejects breaks the limit that is named."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.record import Config
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.templates.winograd import WinogradTemplate
from anole.targets.cuda.templates.winograd_space import can_winograd, output_tiles, winograd_space
from anole.targets.shared.kernel import define
from anole.task import Conv2d

from ....examples import examples
from .kernels import kernels_of, source_of
from .workloads import LIMITS, TARGET, WINOGRAD, winograd_convolutions

PADDED = (1, 1, 1, 1)
TEMPLATE = WinogradTemplate()
SMALL = BlockLimits(
    threads_per_block=96,
    threads_z=1,
    shared_bytes_per_block=1500,
    registers_per_block=2500,
    registers_per_thread=40,
    virtual_threads=4,
    grid_x=100,
    grid_y=6,
)
"""A device on which small workloads break every limit that they can break."""


@pytest.mark.parametrize(
    ("workload", "size"),
    [
        (Conv2d(1, 224, 224, 64, 64, (3, 3), padding=PADDED), 2_773_008),
        (Conv2d(1, 56, 56, 64, 64, (3, 3), padding=PADDED), 2_328_480),
        (Conv2d(1, 28, 28, 128, 128, (3, 3), padding=PADDED), 2_937_600),
        (Conv2d(1, 14, 14, 256, 256, (3, 3), padding=PADDED), 1_657_260),
        (Conv2d(1, 7, 7, 512, 512, (3, 3), padding=PADDED), 924_000),
    ],
    ids=lambda value: getattr(value, "label", str(value)),
)
def test_spaces_are_large(workload: Conv2d, size: int) -> None:
    assert len(winograd_space(LIMITS, TARGET.gpu, workload)) == size


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": (1, 1)},
        {"kernel": (5, 5)},
        {"strides": (1, 2)},
        {"dilation": (2, 2)},
        {"groups": 2},
    ],
    ids=str,
)
def test_only_dense_neighbourhoods_are_for_winograd(change: dict[str, object]) -> None:
    assert can_winograd(WINOGRAD)
    assert not can_winograd(replace(WINOGRAD, **change))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("size", [2, 4])
def test_every_tile_has_a_number_and_a_place(batch: int, size: int) -> None:
    workload = Conv2d(batch, 13, 6, 8, 8, (3, 3), padding=PADDED)
    tiles = output_tiles(workload, {"tile_size": size, "tile_p": [2, 4, 1]})
    assert [tiles.number(*tiles.first(number)) for number in range(tiles.count)] == list(range(tiles.count))
    assert tiles.first(tiles.count - 1) == (batch - 1, (tiles.rows - 1) * size, (tiles.columns - 1) * size)
    assert (tiles.rows - 1) * size < 13 <= tiles.rows * size
    assert tiles.padded_count % 8 == 0 and 0 <= tiles.padded_count - tiles.count < 8


@settings(max_examples=examples(25), deadline=None)
@given(workload=winograd_convolutions, seed=st.integers(0, 1 << 30))
def test_the_features_describe_every_config_alike(workload: Conv2d, seed: int) -> None:
    space = winograd_space(LIMITS, TARGET.gpu, workload)
    vectors = space.sample(5, np.random.default_rng(seed))
    features = space.features(vectors)
    assert features.shape == (len(vectors), len(space.feature_names))
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(features[:1], space.features(vectors[:1]))


@pytest.mark.guard
@settings(max_examples=examples(25), deadline=None)
@given(workload=winograd_convolutions)
def test_the_default_is_valid_on_any_device(workload: Conv2d) -> None:
    for limits in (LIMITS, replace(SMALL, grid_x=1 << 20, grid_y=1 << 10)):
        space = winograd_space(limits, TARGET.gpu, workload)
        assert space.rejection(space.best_drawn) is None


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(workload=winograd_convolutions, seed=st.integers(0, 1 << 30))
def test_what_is_rejected_breaks_the_limit_that_is_named(workload: Conv2d, seed: int) -> None:
    space = winograd_space(SMALL, TARGET.gpu, workload)
    config = space.config(space.vectors(np.random.default_rng(seed).integers(0, space.size, 1))[0])
    reason = space.rejection(config)
    data, products, outputs = taken_by(workload, config, SMALL)
    exceeded = {what for what, (amount, limit) in products.items() if amount > limit}
    for transform in (data, outputs):
        exceeded |= {f"the transforms: {what}" for what, (amount, limit) in transform.items() if amount > limit}
    if reason is None:
        assert not exceeded
    elif "twice as many tiles" in reason:
        assert prod(config["tile_p"]) >= 2 * output_tiles(workload, config).count
    elif found := re.search(r"fewer than (\d+) threads", reason):
        assert products["a block has too many threads"][0] < int(found[1])
    else:
        assert reason.partition(";")[0] in exceeded


def test_every_limit_that_can_be_broken_rejects_something() -> None:
    limits = replace(SMALL, grid_x=60, grid_y=40)
    space = winograd_space(limits, TARGET.gpu, Conv2d(2, 14, 14, 32, 64, (3, 3), padding=PADDED))
    columns = space.columns(space.vectors(np.random.default_rng(0).integers(0, space.size, 4096)))
    share = {constraint.reason: float(constraint.holds(columns).mean()) for constraint in space.constraints}
    assert len(share) == 8 + 8 + 2
    assert all(held > 0 for held in share.values())
    assert {reason.partition(";")[0] for reason, held in share.items() if held == 1} == {
        "a block has too many threads along z",
        "the transforms: a block has too many threads",
        "the transforms: a block has too many threads along z",
        "the transforms: too many bytes of shared memory",
        "the transforms: too many virtual threads along an axis",
        "the transforms: too many blocks along y",
    }


def taken_by(workload: Conv2d, config: Config, limits: BlockLimits) -> list[dict[str, tuple[int, int]]]:
    """What each kernel takes, read from the schedule and CUDA source, and the limit, by the words of a rejection."""
    script = TEMPLATE.schedule(define(TEMPLATE, workload, config), workload, config).script()
    nests = re.split(r'(?=T\.thread_binding\(\d+, thread="blockIdx\.x")', script)[1:]
    kernels = kernels_of(source_of(TEMPLATE, workload, config))
    return [taken_by_kernel(nest, kernel, limits) for nest, kernel in zip(nests, kernels, strict=True)]


def taken_by_kernel(nest: str, kernel: str, limits: BlockLimits) -> dict[str, tuple[int, int]]:
    bound = re.findall(r'T\.thread_binding\((\d+), thread="([\w.]+)"', nest)
    loops = {axis: int(extent) for extent, axis in bound}
    found = re.search(r"__launch_bounds__\((\d+)\)", kernel)
    threads = int(found[1]) if found else 1
    arrays = re.findall(r"(__shared__ )?alignas\(64\) float \w+\[(\d+)\]", kernel)
    shared = [4 * int(size) for place, size in arrays if place]
    held = max(int(size) for place, size in arrays if not place) + 8
    virtual = max((extent for axis, extent in loops.items() if axis.startswith("vthread")), default=1)
    return {
        "a block has too many threads": (threads, limits.threads_per_block),
        "a block has too many threads along z": (loops.get("threadIdx.z", 1), limits.threads_z),
        "too many bytes of shared memory": (
            sum(-(-size // 64) * 64 for size in shared[:-1]) + sum(shared[-1:]),
            limits.shared_bytes_per_block,
        ),
        "too many registers of a thread": (held, limits.registers_per_thread),
        "too many registers of a block": (held * threads, limits.registers_per_block),
        "too many virtual threads along an axis": (virtual, limits.virtual_threads),
        "too many blocks along x": (loops["blockIdx.x"], limits.grid_x),
        "too many blocks along y": (loops.get("blockIdx.y", 1), limits.grid_y),
    }
