"""Winograd on the CPU: any config of any workload is right, for any vectors, and asks for weights where it should."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.winograd import WinogradTemplate
from anole.targets.cpu.templates.winograd_space import winograd_space
from anole.task import Conv2d

from ....examples import examples
from .kernels import UNIT, UNITS, drawn, error_of, text_of
from .workloads import winograd_convolutions


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(workload=winograd_convolutions, seed=st.integers(0, 1 << 30))
# Blocks that span two images, in whole rows of tiles.
@example(workload=Conv2d(4, 4, 5, 3, 16, (3, 3), padding=(2, 2, 2, 2)), seed=0)
# Dilated: rows that the dilation divides, and columns that it does not.
@example(workload=Conv2d(2, 12, 13, 3, 16, (3, 3), padding=(4, 3, 4, 3), dilation=(4, 3)), seed=0)
def test_any_valid_config_is_right(workload: Conv2d, seed: int) -> None:
    assert error_of(WinogradTemplate(UNIT), workload, drawn(winograd_space(UNIT, 2, workload), seed)) < 1e-5


@pytest.mark.examples(1)
@pytest.mark.parametrize("unit", UNITS.values(), ids=list(UNITS))
def test_any_vectors_will_do(unit: VectorUnit) -> None:
    workload = Conv2d(2, 9, 11, 12, 19, (3, 3), padding=(1, 1, 1, 1))
    assert error_of(WinogradTemplate(unit), workload, winograd_space(unit, 2, workload).best_drawn) < 1e-5


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("taps", "size", "bound"), [(3, 2, 1e-6), (3, 4, 4e-6), (3, 6, 1.2e-5), (5, 2, 5e-6), (5, 4, 1e-5)]
)
def test_large_tiles_lose_little_of_many_channels(taps: int, size: int, bound: float) -> None:
    workload = Conv2d(1, 12, 12, 512, 16, (taps, taps), padding=(1, 1, 1, 1))
    config = drawn(winograd_space(UNIT, 1, workload), tile_size=size)
    assert 1e-8 < error_of(WinogradTemplate(UNIT), workload, config) < bound


@pytest.mark.parametrize("prefetch_rc", [0, 4])
def test_weights_are_asked_for_only_where_that_was_chosen(prefetch_rc: int) -> None:
    workload = Conv2d(1, 12, 12, 32, 32, (3, 3))
    config = drawn(winograd_space(UNIT, 1, workload), prefetch_rc=prefetch_rc)
    text = text_of(WinogradTemplate(UNIT), workload, config)
    assert ("prefetch" in text) == bool(prefetch_rc)
    assert "T.parallel(" in text and "T.vectorized(" in text


@given(workload=winograd_convolutions, seed=st.integers(0, 1 << 30))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
def test_packed_weights_are_the_transformed_ones_and_zeros(workload: Conv2d, seed: int) -> None:
    template, config = WinogradTemplate(UNIT), drawn(winograd_space(UNIT, 2, workload), seed)
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((*workload.kernel, workload.in_channels, workload.out_channels), dtype=np.float32)
    packed = template.pack_weight(workload, config, weight)
    assert packed.shape == template.packed_shape(workload, config) and packed.dtype == np.float32
    filters = np.moveaxis(packed, 0, 3).reshape(*packed.shape[1:4], -1)
    assert not filters[..., workload.out_channels :].any()
    # The last point is infinity, at which a filter has the value of its last tap.
    np.testing.assert_array_equal(filters[-1, -1, :, : workload.out_channels], weight[-1, -1])


RELATIVE = {"eighth", "more loads"}
"""What only counts where it can be avoided."""


def limits_broken(unit: VectorUnit, workload: Conv2d, config: Mapping[str, Any]) -> set[str]:
    """What a config exceeds, counted by hand, beside what a workload may be too small for."""
    tiles, register = config["tile_p"]
    vectors = config["tile_f"][2] // unit.lanes
    side, points = config["tile_size"], (config["tile_size"] + workload.kernel[0] - 1) ** 2
    apart_y, apart_x = workload.dilation
    tall, wide = -(-workload.out_height // (apart_y * side)), -(-workload.out_width // (apart_x * side))
    count = workload.batch * apart_y * apart_x * tall * wide
    held = (workload.in_channels if config["data_at"] == "parallel" else 0) + config["tile_f"][2]
    broken = {
        "registers": register * vectors + vectors + 1 > unit.registers,
        "half as many": -(-count // (tiles * register)) * tiles * register >= 1.5 * count,
        "cache": 4 * points * tiles * register * held > 1 << 20,
        "eighth": 8 * -(-count // (tiles * register)) * tiles * register > 9 * count,
        "more loads": register + vectors > register * vectors,
    }
    return {reason for reason, is_broken in broken.items() if is_broken}


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(workload=winograd_convolutions, unit=st.sampled_from(list(UNITS.values())), seed=st.integers(0, 1 << 30))
def test_what_is_rejected_breaks_the_limit_that_is_named(workload: Conv2d, unit: VectorUnit, seed: int) -> None:
    space = winograd_space(unit, 2, workload)
    config = space.config(space.vectors(np.random.default_rng(seed).integers(0, space.size, 1))[0])
    reason, broken = space.rejection(config), limits_broken(unit, workload, config)
    if reason is None:
        assert not broken - RELATIVE
    elif "accumulators to hide" not in reason and "parallel chunks" not in reason:
        assert any(each in reason for each in broken)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(workload=winograd_convolutions, unit=st.sampled_from(list(UNITS.values())), threads=st.integers(1, 9))
def test_every_tile_size_leaves_a_choice(workload: Conv2d, unit: VectorUnit, threads: int) -> None:
    space = winograd_space(unit, threads, workload)
    draw = partial(drawn, space, 0)
    for size in space.knobs[0].values:
        assert space.rejection(draw(tile_size=size)) is None
    assert space.rejection(space.best_drawn) is None
