"""Launches are read from the lowered host part: kernels, buffers, grid and block are what the schedule says."""

from __future__ import annotations

import re
from math import prod

import pytest

from anole.errors import TargetError
from anole.record import Config
from anole.space import ALGORITHM
from anole.targets.cuda.settings import describe_cuda
from anole.targets.cuda.target import CudaTarget
from anole.targets.cuda.templates.winograd_space import output_tiles, winograd_space
from anole.targets.shared.kernel import define
from anole.task import BatchMatmul, Conv2d, Dense, Workload
from anole.testing.opencl.launches import Launches
from anole.testing.opencl.lowering import NotCoveredError, lower

TARGET = CudaTarget(describe_cuda("sm_90"))
CONV = Conv2d(1, 6, 6, 4, 8, (3, 3), padding=(1, 1, 1, 1))
WORKLOADS = [CONV, Conv2d(1, 6, 6, 8, 8, (3, 3), groups=8), Dense(33, 6, 8), BatchMatmul(2, 6, 4, 8)]


def lowered(workload: Workload, config: Config) -> Launches:
    return lower(TARGET.template(workload), workload, config, TARGET.description)


def bound(workload: Workload, config: Config) -> dict[str, int]:
    template = TARGET.template(workload)
    script = template.schedule(define(template, workload, config), workload, config).script()
    found = re.findall(r'T\.thread_binding\((\d+), thread="((?:block|thread)Idx\.[xyz])"', script)
    return {axis: int(extent) for extent, axis in found}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.label)
def test_grid_and_block_are_what_the_schedule_binds(workload: Workload) -> None:
    config = TARGET.default_config(workload)
    (launch,) = lowered(workload, config).launches
    extents = bound(workload, config)
    assert launch.grid == tuple(extents.get(f"blockIdx.{axis}", 1) for axis in "xyz")
    assert launch.block == tuple(extents.get(f"threadIdx.{axis}", 1) for axis in "xyz")
    assert prod(launch.threads) == prod(extents.values())


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.label)
def test_kernels_take_their_buffers_in_their_own_order(workload: Workload) -> None:
    launches = lowered(workload, TARGET.default_config(workload))
    expected = ["data", "packed", *(["bias"] if workload.constant_weight else [])]
    assert launches.inputs == tuple(expected) and launches.output not in expected
    for launch in launches.launches:
        (declared,) = re.findall(rf"void {launch.kernel}\((.*)\);", launches.source)
        assert [f"{name}_ptr" for name in launch.arguments] == re.findall(r"(\w+)(?:,|$)", declared)


@pytest.mark.parametrize("size", [2, 4])
def test_winograd_is_three_launches_with_buffers_between(size: int) -> None:
    config = {ALGORITHM: "winograd", **winograd_space(TARGET.limits, TARGET.gpu, CONV).best_drawn, "tile_size": size}
    launches = lowered(CONV, config)
    data, products, outputs = launches.launches
    assert data.arguments == ("data", "winograd_data")
    assert products.arguments == ("packed", "winograd_data", "winograd_product")
    assert outputs.arguments == ("bias", "relu", "winograd_product")
    assert len({launch.kernel for launch in launches.launches}) == 3
    tiles = output_tiles(CONV, config)
    values = {name: tiles.points**2 * tiles.padded_count * n for name, n in (("data", 4), ("product", 8))}
    assert launches.workspaces == {f"winograd_{name}": n for name, n in values.items()}
    assert launches.sizes == {**launches.parameters, **launches.workspaces}


@pytest.mark.parametrize("threads", [(1, 32), (2, 8), (1, 64), (1, 48)])
def test_warp_shuffles_and_what_only_warps_wait_for_are_refused(threads: tuple[int, int]) -> None:
    along_x, along_k = threads
    workload = Dense(2, 2 * along_k, 8)
    config = {**TARGET.default_config(workload), "tile_x": [4 // along_x, along_x, 2], "tile_k": [1, along_k, 2]}
    with pytest.raises(NotCoveredError, match=r"^dense .*: TVM makes other steps of this.*; execute the CUDA source"):
        lowered(workload, config)


@pytest.mark.parametrize(("threads", "barriers"), [((1, 1), 0), ((2, 3), 2)])
def test_a_reduction_by_one_thread_or_with_barriers_is_lowered(threads: tuple[int, int], barriers: int) -> None:
    along_x, along_k = threads
    workload = Dense(2, 2 * along_k, 8)
    config = {**TARGET.default_config(workload), "tile_x": [4 // along_x, along_x, 2], "tile_k": [1, along_k, 2]}
    assert lowered(workload, config).source.count("barrier(") >= barriers


def test_only_float32_is_run() -> None:
    workload = Dense(33, 6, 8, dtype="float64")
    with pytest.raises(TargetError, match="holds float64; only float32"):
        lowered(workload, TARGET.default_config(workload))
