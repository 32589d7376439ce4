"""The CUDA spaces: as large as the papers', and every config they reject breaks the limit that is named."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.errors import ConfigError
from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.device.builder import source
from anole.targets.cuda.target import CudaTarget
from anole.targets.cuda.templates.conv2d_space import conv2d_space
from anole.targets.cuda.templates.winograd_space import winograd_space
from anole.targets.shared.kernel import define
from anole.task import Conv2d, Workload

from ....examples import examples
from .workloads import ONE_OF_EACH, TARGET, workloads

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
"""A device on which small workloads break every limit."""

EXAMPLES = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(
    ("workload", "size"),
    [
        (Conv2d(1, 224, 224, 3, 64, (7, 7), strides=(2, 2), padding=(3, 3, 3, 3)), 79_027_200),
        (Conv2d(1, 56, 56, 64, 64, (3, 3), padding=PADDED), 90_316_800),
        (Conv2d(1, 28, 28, 128, 128, (3, 3), padding=PADDED), 36_864_000),
        (Conv2d(1, 7, 7, 512, 512, (3, 3), padding=PADDED), 844_800),
    ],
    ids=lambda value: getattr(value, "label", str(value)),
)
def test_convolutions_have_as_many_configs_as_in_autotvm(workload: Conv2d, size: int) -> None:
    assert len(conv2d_space(TARGET.limits, TARGET.gpu, workload)) == size


def test_knobs_have_the_papers_names_and_agents() -> None:
    space = conv2d_space(TARGET.limits, TARGET.gpu, ONE_OF_EACH["conv2d"])
    assert space.names_of("spatial") == ["tile_f", "tile_y", "tile_x"]
    assert space.names_of("reduction") == ["tile_rc", "tile_ry", "tile_rx"]
    assert space.names_of("") == ["auto_unroll_max_step", "unroll_explicit"]


def test_a_convolution_of_three_by_three_is_tuned_with_all_of_its_algorithms() -> None:
    workload = Conv2d(1, 28, 28, 128, 128, (3, 3), padding=PADDED)
    space = TARGET.space(workload)
    parts = [make(TARGET.limits, TARGET.gpu, workload) for make in (conv2d_space, winograd_space)]
    assert len(space) == sum(map(len, parts))
    assert set(space.columns(space.sample(64, np.random.default_rng(0)))[ALGORITHM]) == {"direct", "winograd"}


def test_the_promising_configs_are_of_all_algorithms() -> None:
    space = TARGET.space(Conv2d(1, 28, 28, 128, 128, (3, 3), padding=PADDED))
    vectors = space.promising(16, np.random.default_rng(0))
    assert len(vectors) == 16 and space.valid(vectors).all()
    assert set(space.columns(vectors[:3])[ALGORITHM]) == {"direct", "winograd"}


def test_a_single_channel_of_three_by_three_is_depthwise() -> None:
    workload = Conv2d(1, 28, 28, 1, 1, (3, 3), padding=PADDED)
    assert ALGORITHM not in TARGET.default_config(workload)
    assert TARGET.space(workload).rejection(TARGET.default_config(workload)) is None


@EXAMPLES
@given(workload=workloads)
def test_the_default_is_valid_on_any_device(workload: Workload) -> None:
    for limits in (BlockLimits(), replace(SMALL, grid_x=1 << 20, grid_y=1 << 10)):
        target = CudaTarget({**TARGET.description, "limits": limits.to_json()})
        assert target.space(workload).rejection(target.default_config(workload)) is None


@EXAMPLES
@given(workload=workloads, seed=st.integers(0, 1 << 30))
def test_the_features_describe_every_config_alike(workload: Workload, seed: int) -> None:
    space = TARGET.space(workload)
    vectors = space.sample(5, np.random.default_rng(seed))
    features = space.features(vectors)
    assert features.shape == (len(vectors), len(space.feature_names))
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(features[:1], space.features(vectors[:1]))


@EXAMPLES
@given(workload=workloads, seed=st.integers(0, 1 << 30))
def test_what_is_rejected_breaks_the_limit_that_is_named(workload: Workload, seed: int) -> None:
    target = CudaTarget({**TARGET.description, "limits": SMALL.to_json()})
    space = target.space(workload)
    config = space.config(space.vectors(np.random.default_rng(seed).integers(0, space.size, 1))[0])
    reason = space.rejection(config)
    taken = taken_by(target, workload, config)
    exceeded = {what for what, (amount, limit) in taken.items() if amount > limit}
    if reason is None:
        assert not exceeded
        return
    named = next((what for what in sorted(taken, key=len, reverse=True) if what in reason), None)
    if named is None:
        least = int(re.search(r"fewer than (\d+) threads", reason)[1])
        assert taken["many threads"][0] < least
    else:
        assert named in exceeded


def test_every_limit_rejects_something() -> None:
    target = CudaTarget({**TARGET.description, "limits": replace(SMALL, grid_y=40).to_json()})
    space = conv2d_space(target.limits, TARGET.gpu, Conv2d(2, 14, 14, 32, 64, (3, 3), padding=PADDED))
    columns = space.columns(space.vectors(np.random.default_rng(0).integers(0, space.size, 4096)))
    share = {constraint.reason: float(constraint.holds(columns).mean()) for constraint in space.constraints}
    assert len(share) == 9
    assert all(0 < held < 1 for held in share.values())


@pytest.mark.parametrize("amount", [15, 16])
def test_virtual_threads_within_the_limit_are_unrolled(amount: int) -> None:
    workload = Conv2d(1, 4, 240, 8, 32, (1, 1))
    config = {
        **{"tile_f": [1, 2, 16, 1], "tile_y": [2, 1, 2, 1], "tile_x": [240 // amount, amount, 1, 1]},
        **{"tile_rc": [4, 2], "tile_ry": [1, 1], "tile_rx": [1, 1]},
        **{"auto_unroll_max_step": 0, "unroll_explicit": 0},
    }
    template = TARGET.template(workload)
    text = source(template.schedule(define(template, workload, config), workload, config), TARGET.description)
    is_unrolled = "int vthread" not in text
    assert is_unrolled == (amount <= TARGET.limits.virtual_threads)
    assert is_unrolled == (TARGET.space(workload).rejection(config) is None)


def test_a_workload_that_fits_no_device_is_said() -> None:
    target = CudaTarget({**TARGET.description, "limits": replace(SMALL, grid_x=1, threads_per_block=1).to_json()})
    with pytest.raises(ConfigError, match="constraints leave no config"):
        target.default_config(Conv2d(3, 4, 4, 4, 4, (1, 1)))


def taken_by(target: CudaTarget, workload: Workload, config: Config) -> dict[str, tuple[int, int]]:
    """What a candidate takes, read from its schedule and CUDA source, and the limit, by the words of a rejection."""
    limits, template = target.limits, target.template(workload)
    func = template.schedule(define(template, workload, config), workload, config)
    text = source(func, target.description)
    loops = {}
    for extent, axis in re.findall(r'T\.thread_binding\((\d+), thread="([\w.]+)"', func.script()):
        loops[axis] = int(extent)
    (threads,) = {int(found) for found in re.findall(r"__launch_bounds__\((\d+)\)", text)} or {1}
    arrays = re.findall(r"(__shared__ )?alignas\(64\) float (\w+)\[(\d+)\]", text)
    shared = [4 * int(size) for place, name, size in arrays if place and not name.startswith("red_")]
    # What threads add up together replaces what each of them held, and is no more than that.
    summed = "dense_local" if "dense_local_rf_ptr" in text else None
    local = [int(size) for place, name, size in arrays if not place and "_local_" in name and name != f"{summed}_ptr"]
    held = sum(local) + 8
    virtual = max((extent for axis, extent in loops.items() if axis.startswith("vthread")), default=1)
    return {
        "many threads": (threads, limits.threads_per_block),
        "many threads along z": (loops.get("threadIdx.z", 1), limits.threads_z),
        "bytes of shared memory": (
            sum(-(-size // 64) * 64 for size in shared[:-1]) + sum(shared[-1:]),
            limits.shared_bytes_per_block,
        ),
        "registers of a thread": (held, limits.registers_per_thread),
        "registers of a block": (held * threads, limits.registers_per_block),
        "many virtual threads": (virtual, limits.virtual_threads),
        "many blocks along x": (loops["blockIdx.x"], limits.grid_x),
        "many blocks along y": (loops["blockIdx.y"], limits.grid_y),
    }


def test_an_exact_convolution_is_never_transformed() -> None:
    workload = Conv2d(1, 28, 28, 128, 128, (3, 3), padding=PADDED, exact=True)
    assert TARGET.space(workload).algorithms == ("",)
    assert TARGET.space(workload).rejection(TARGET.default_config(workload)) is None
