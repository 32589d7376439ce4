"""Extents are rounded up to good register tiles, and threads share all layers except small ones."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.record import Config
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.targets.cpu.templates.register_tiles import covering
from anole.task import BatchMatmul, Conv2d, Dense, Workload

TARGET = CpuTarget(describe_cpu("skylake-avx512", threads=2, model="any"))


@given(extent=st.integers(1, 5000))
def test_a_good_tile_divides_the_rounded_extent(extent: int) -> None:
    covered = covering(extent)
    assert extent <= covered <= extent + 5
    assert covered == extent <= 16 or any(covered % tile == 0 for tile in range(6, 17))
    assert covering(covered) == covered


@pytest.mark.parametrize(("extent", "covered"), [(1, 1), (13, 13), (17, 18), (128, 128), (149, 150), (197, 198)])
def test_only_extents_without_good_tiles_are_rounded_up(extent: int, covered: int) -> None:
    assert covering(extent) == covered


@pytest.mark.parametrize(
    "workload", [Dense(197, 64, 96), BatchMatmul(2, 197, 64, 197), Conv2d(1, 73, 73, 64, 80, (1, 1))]
)
def test_primes_are_computed_in_tiles(workload: Workload) -> None:
    tile = "tile_x" if isinstance(workload, Conv2d) else "tile_y"
    (values,) = (knob.values for knob in TARGET.space(workload).knobs if knob.name == tile)
    assert max(split[-1] for split in values) >= 6
    assert TARGET.default_config(workload)[tile][-1] >= 5


def chunks(config: Config) -> int:
    """Return the number of parallel chunks: the product of the outermost parts of all three-way splits."""
    return prod(value[0] for value in config.values() if isinstance(value, list | tuple) and len(value) == 3)


@pytest.mark.parametrize(
    ("workload", "is_small"),
    [
        (Dense(1, 64, 128), True),
        (BatchMatmul(1, 16, 32, 32), True),
        (Conv2d(1, 8, 8, 16, 32, (1, 1)), True),
        (Conv2d(1, 8, 8, 32, 32, (3, 3), groups=32), True),
        (Dense(1, 128, 512), False),
        (Dense(1, 512, 512), False),
        (BatchMatmul(1, 64, 64, 64), False),
        (Conv2d(1, 28, 28, 64, 64, (1, 1)), False),
        (Conv2d(1, 56, 56, 64, 64, (3, 3), groups=64), False),
    ],
)
def test_one_thread_may_compute_a_small_layer_and_does_by_default(workload: Workload, is_small: bool) -> None:
    space = TARGET.space(workload)
    sampled = [chunks(space.config(vector)) for vector in space.sample(200, np.random.default_rng(0))]
    assert (min(sampled) == 1) == is_small and max(sampled) > 1
    assert (chunks(TARGET.default_config(workload)) == 1) == is_small


@pytest.mark.parametrize(
    "workload", [Conv2d(1, 56, 56, 64, 256, (1, 1)), Conv2d(1, 28, 28, 512, 128, (1, 1)), BatchMatmul(4, 196, 64, 196)]
)
def test_default_panels_have_several_vectors_if_scalars_are_broadcast(workload: Workload) -> None:
    target = CpuTarget(describe_cpu("znver3", threads=2, model="any"))
    panel = "tile_x" if isinstance(workload, BatchMatmul) else "tile_f"
    assert target.unit == VectorUnit(8, 16) and target.default_config(workload)[panel][-1] > 8
