"""DCOC's design space: what a config means, and that what is valid can be run."""

from __future__ import annotations

import numpy as np
import pytest

from anole.errors import ConfigError
from anole.targets.vta.area import Bounds, relative_area
from anole.targets.vta.geometry import DEFAULT, Geometry
from anole.targets.vta.simulator.timing import simulate
from anole.targets.vta.templates.conv2d import check_schedule, lower_conv2d
from anole.targets.vta.templates.design import EPILOGUE, conv2d_space, default_config, design_of, whole_blocks
from anole.task import Conv2d

SAME = (1, 1, 1, 1)
LAYERS = [
    Conv2d(1, 14, 14, 64, 64, (3, 3), padding=SAME),
    Conv2d(1, 14, 14, 64, 128, (1, 1), (2, 2)),
    Conv2d(2, 7, 7, 32, 32, (3, 3), padding=SAME),
]


def test_the_agents_are_the_papers():
    space = conv2d_space(LAYERS[0], DEFAULT, Bounds())
    names = [knob.name for knob in space.knobs]
    assert {agent: [names[knob] for knob in knobs] for agent, knobs in space.agents.items()} == {
        "hardware": ["tile_b", "tile_ci", "tile_co"],
        "scheduling": ["h_threading", "oc_threading"],
        "mapping": ["tile_h", "tile_w"],
    }


@pytest.mark.parametrize("bounds", [None, Bounds()], ids=["fixed", "search"])
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.label)
def test_what_is_valid_can_be_run(layer, bounds):
    space = conv2d_space(layer, DEFAULT, bounds)
    assert 0 < len(space.valid_indices) < space.size
    for vector in space.sample(12, np.random.default_rng(0)):
        design = design_of(layer, DEFAULT, space.config(vector))
        program = lower_conv2d(whole_blocks(layer, design.geometry), design.schedule, design.geometry, EPILOGUE)
        assert simulate(program.instructions, design.geometry).cycles > 0
        assert bounds is not None or design.geometry == DEFAULT


def test_a_tile_has_as_many_output_blocks_as_fit():
    config = {"tile_b": 1, "tile_ci": 16, "tile_co": 16, "h_threading": 1, "oc_threading": 1, "tile_h": 7, "tile_w": 14}
    design = design_of(LAYERS[0], DEFAULT, config)
    assert (design.schedule.tile_co, design.schedule.tile_ci) == (4, 1)
    # With two threads over output channels each has half of them at most.
    assert design_of(LAYERS[0], DEFAULT, config | {"oc_threading": 2}).schedule.tile_co == 2
    # Without a border several blocks of input channels are loaded at once, where rows are whole.
    pointwise = Conv2d(1, 14, 14, 64, 64, (1, 1))
    assert design_of(pointwise, DEFAULT, config).schedule.tile_ci == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tile_b": 2}, "1 batch are not a multiple of the block's 2"),
        ({"tile_h": 5}, "tile_h 5 does not divide 14"),
        ({"tile_ci": 8}, "too deep for the fields"),
        ({"tile_h": 14, "h_threading": 2}, "thread split"),
    ],
)
def test_what_is_invalid_has_a_reason(change, reason):
    config = {"tile_b": 1, "tile_ci": 16, "tile_co": 16, "h_threading": 1, "oc_threading": 1, "tile_h": 7, "tile_w": 14}
    with pytest.raises(ConfigError, match=reason):
        design_of(LAYERS[0], DEFAULT, config | change)
    space = conv2d_space(LAYERS[0], DEFAULT, Bounds())
    assert space.rejection(config) is None
    if "tile_h" not in change or change["tile_h"] == 14:
        assert space.rejection(config | change) == "the accelerator cannot run it so"


def test_channels_are_filled_up_to_whole_blocks():
    config = {
        "tile_b": 1,
        "tile_ci": 32,
        "tile_co": 128,
        "h_threading": 1,
        "oc_threading": 1,
        "tile_h": 7,
        "tile_w": 14,
    }
    design = design_of(LAYERS[0], DEFAULT, config)
    whole = whole_blocks(LAYERS[0], design.geometry)
    assert (whole.in_channels, whole.out_channels) == (64, 128)
    assert conv2d_space(LAYERS[0], DEFAULT, Bounds()).rejection(config) is None
    with pytest.raises(ConfigError, match="64 output channels are not a multiple"):
        check_schedule(LAYERS[0], design.schedule, design.geometry)


def test_what_exceeds_the_bounds_is_worth_less():
    config = {"tile_b": 1, "tile_ci": 16, "tile_co": 16, "h_threading": 1, "oc_threading": 1, "tile_h": 7, "tile_w": 14}
    space = conv2d_space(LAYERS[0], DEFAULT, Bounds(area_max=2.0, penalty=0.5))
    assert space.worth(config) == 1
    large = config | {"tile_ci": 64, "tile_co": 64}
    excess = relative_area(Geometry(1, 64, 64)) - 2.0
    assert excess > 0 and space.worth(large) == pytest.approx(1 - 0.5 * excess)
    assert conv2d_space(LAYERS[0], DEFAULT, Bounds(area_max=2.0, penalty=10.0)).worth(large) == 0
    assert conv2d_space(LAYERS[0], DEFAULT).worth(config) == 1


@pytest.mark.parametrize("layer", LAYERS[:2], ids=lambda layer: layer.label)
def test_the_default_is_decent(layer):
    space = conv2d_space(layer, DEFAULT)

    def cycles(config):
        design = design_of(layer, DEFAULT, config)
        check_schedule(layer, design.schedule, design.geometry, EPILOGUE)
        return simulate(lower_conv2d(layer, design.schedule, design.geometry, EPILOGUE).instructions, DEFAULT).cycles

    every = [cycles(space.config(vector)) for vector in space.vectors(space.valid_indices)]
    assert cycles(default_config(layer, DEFAULT)) <= np.quantile(every, 0.25)


def test_what_cannot_be_run_at_all_is_said():
    with pytest.raises(ConfigError, match="cannot run it at all"):
        default_config(Conv2d(1, 14, 14, 64, 64, (3, 3), padding=(16, 16, 16, 16)), Geometry())
