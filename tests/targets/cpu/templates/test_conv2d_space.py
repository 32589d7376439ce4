"""The analytical model of direct convolutions: slower configs have lower merit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates.conv2d_space import conv2d_space
from anole.task import Conv2d

UNIT = VectorUnit(lanes=16, registers=32)
POINTWISE = Conv2d(1, 14, 14, 512, 1024, (1, 1))
CONFIG = {
    "tile_f": (2, 16, 32),
    "tile_y": (2, 7, 1),
    "tile_x": (2, 7),
    "tile_rc": (1, 512),
    "tile_ry": (1, 1),
    "tile_rx": (1, 1),
    "auto_unroll_max_step": 0,
    "unroll_explicit": 0,
    "parallel_order": "fy",
    "tile_order": "fyx",
    "pad_at": "none",
    "prefetch": 1,
}
"""A good config: two threads share it evenly, weights are read once, and a tile fills the registers."""


def merit(workload: Conv2d, **changes: Any) -> float:
    space = conv2d_space(UNIT, 2, workload)
    assert space.merit is not None
    config = {name: value for name, value in (CONFIG | changes).items() if name in {knob.name for knob in space.knobs}}
    return float(space.merit(space.columns(space.vector(config)[None, :]))[0])


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tile_f": (1, 32, 32), "tile_y": (7, 2, 1)}, id="seven chunks for two threads"),
        pytest.param({"tile_order": "yxf"}, id="all weights again for every tile"),
        pytest.param({"tile_x": (7, 2)}, id="few accumulators, more loads"),
        pytest.param({"tile_f": (2, 4, 128), "tile_x": (14, 1)}, id="each weight is used for one pixel"),
        pytest.param({"tile_f": (2, 8, 64), "tile_y": (2, 7, 1), "tile_x": (7, 2)}, id="each weight for two pixels"),
        pytest.param({"tile_f": (4, 4, 64), "tile_y": (1, 7, 2), "tile_x": (7, 2)}, id="each weight for four pixels"),
        pytest.param({"prefetch": 0}, id="weights are not prefetched"),
    ],
)
def test_slower_configs_have_lower_merit(changes: dict[str, Any]) -> None:
    assert merit(POINTWISE, **changes) < merit(POINTWISE)


def test_pixels_that_share_a_cache_set_lower_the_merit() -> None:
    conflicting, spread = (Conv2d(1, 14, 14, channels, 1024, (1, 1)) for channels in (1024, 1040))
    wide = {"tile_x": (1, 14)}
    ratios = [
        merit(workload, tile_rc=(1, workload.in_channels), **wide) / merit(workload, tile_rc=(1, workload.in_channels))
        for workload in (conflicting, spread)
    ]
    assert ratios[0] > 1.1 > ratios[1]


def test_gaps_between_pixels_raise_the_merit() -> None:
    workload = Conv2d(1, 14, 14, 1024, 1024, (3, 3), padding=(1, 1, 1, 1))
    taps = {"tile_rc": (1, 1024), "tile_ry": (3, 1), "tile_rx": (3, 1), "tile_x": (1, 14)}
    assert merit(workload, **taps, pad_at="inline") < 1.1 * merit(workload, **taps, pad_at="root")


def test_skipped_steps_take_no_time() -> None:
    workload = Conv2d(1, 28, 28, 1024, 1024, (3, 3), padding=(24,) * 4, dilation=(24, 24))
    taps = {"tile_rc": (1, 1024), "tile_x": (4, 7), "tile_y": (4, 7, 1), "pad_at": "inline"}
    skipping, unskipped = (merit(workload, **taps, tile_ry=tile, tile_rx=tile) for tile in ((3, 1), (1, 3)))
    assert unskipped < 2 * skipping


def test_the_default_is_almost_as_fast_as_its_multiply_adds() -> None:
    multiply_adds = 14 * 14 * 512 * 1024 / 16 / 2 / 2
    space = conv2d_space(UNIT, 2, POINTWISE)
    assert merit(POINTWISE, **space.best_sampled) > -1.25 * multiply_adds


def test_the_estimate_of_a_config_does_not_depend_on_the_batch() -> None:
    space = conv2d_space(UNIT, 2, Conv2d(1, 28, 28, 64, 96, (3, 3), (2, 2), (1, 1, 1, 1)))
    assert space.merit is not None
    columns = space.columns(space.sample(20, np.random.default_rng(0)))
    alone = [space.merit({name: values[[at]] for name, values in columns.items()})[0] for at in range(20)]
    np.testing.assert_allclose(space.merit(columns), alone)


@pytest.mark.parametrize(("columns", "costs"), [((8, 7), False), ((4, 14), True)])
def test_repeated_padding_conditions_slow_down_many_accumulators(columns: tuple[int, int], costs: bool) -> None:
    layer = Conv2d(1, 112, 112, 24, 32, (3, 3), (2, 2), (1, 1, 1, 1))
    tile = {"tile_f": (1, 1, 32), "tile_y": (4, 14, 1), "tile_x": columns, "tile_rc": (1, 24), "tile_ry": (3, 1)}
    inside = merit(layer, **tile, tile_rx=(1, 3), pad_at="inline")
    outside = merit(layer, **tile, tile_rx=(3, 1), pad_at="inline")
    assert (outside < inside) == costs
