"""What is computed for rows that no good tile divides: a few more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.targets.cpu.templates.register_tiles import covering
from anole.task import BatchMatmul, Conv2d, Dense, Workload

TARGET = CpuTarget(describe_cpu("x86-64-v4", 2, "elsewhere"))


@given(extent=st.integers(1, 5000))
def test_a_good_tile_divides_a_little_more_than_there_is(extent: int) -> None:
    covered = covering(extent)
    assert extent <= covered <= extent + 5
    assert covered == extent <= 16 or any(covered % tile == 0 for tile in range(6, 17))
    assert covering(covered) == covered


@pytest.mark.parametrize(("extent", "covered"), [(1, 1), (13, 13), (17, 18), (128, 128), (149, 150), (197, 198)])
def test_only_what_cannot_be_tiled_is_covered_by_more(extent: int, covered: int) -> None:
    assert covering(extent) == covered


@pytest.mark.parametrize(
    ("workload", "alike"),
    [
        (Dense(197, 64, 96), Dense(196, 64, 96)),
        (BatchMatmul(2, 197, 64, 197), BatchMatmul(2, 196, 64, 197)),
        (Conv2d(1, 73, 73, 64, 80, (1, 1)), Conv2d(1, 72, 72, 64, 80, (1, 1))),
    ],
)
def test_primes_are_computed_in_tiles_and_tuned_anew(workload: Workload, alike: Workload) -> None:
    tile = "tile_x" if isinstance(workload, Conv2d) else "tile_y"
    assert max(split[-1] for split in knob_values(workload, tile)) >= 6
    assert TARGET.default_config(workload)[tile][-1] >= 5
    assert TARGET.template_version(workload) == TARGET.template_version(alike) + 1


def test_depthwise_convolutions_have_pixels_of_their_own_number() -> None:
    workload = Conv2d(1, 17, 17, 32, 32, (3, 3), padding=(1, 1, 1, 1), groups=32)
    assert TARGET.template_version(workload) == TARGET.template_version(replace(workload, width=18))


def knob_values(workload: Workload, name: str) -> tuple[tuple[int, ...], ...]:
    return next(knob.values for knob in TARGET.space(workload).knobs if knob.name == name)
