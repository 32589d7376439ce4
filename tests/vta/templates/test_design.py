"""DCOC's design space: the meaning of configs, and that all valid ones can run."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.errors import ConfigError
from anole.task import Conv2d
from anole_vta.area import Bounds, relative_area, unit_speed
from anole_vta.geometry import DEFAULT, Geometry
from anole_vta.simulator.timing import simulate
from anole_vta.templates.conv2d import check_schedule, lower_conv2d
from anole_vta.templates.design import (
    BUFFERS,
    EPILOGUE,
    can_run,
    conv2d_space,
    default_config,
    design_of,
    pad_to_blocks,
    programs_of,
)

from ...examples import examples

SAME = (1, 1, 1, 1)
CONFIG = {
    **{"tile_b": 1, "tile_ci": 16, "tile_co": 16},
    **{"log_inp_buff_size": 15, "log_wgt_buff_size": 18, "log_acc_buff_size": 17},
    **{"h_threading": 1, "oc_threading": 1, "tile_h": 7, "tile_w": 14},
}
LAYERS = [
    Conv2d(1, 14, 14, 64, 64, (3, 3), padding=SAME),
    Conv2d(1, 14, 14, 64, 128, (1, 1), (2, 2)),
    Conv2d(2, 7, 7, 32, 32, (3, 3), padding=SAME),
]


def program_of(layer, base, config):
    """Return the accelerator that a config selects, and the layer's program on it."""
    design = design_of(layer, base, config)
    return design, lower_conv2d(pad_to_blocks(layer, design.geometry), design.schedule, design.geometry, EPILOGUE)


def test_the_agents_are_the_papers():
    space = conv2d_space(LAYERS[0], DEFAULT, Bounds())
    names = [knob.name for knob in space.knobs]
    assert {agent: [names[knob] for knob in knobs] for agent, knobs in space.agents.items()} == {
        "hardware": list(CONFIG)[:6],
        "scheduling": ["h_threading", "oc_threading"],
        "mapping": ["tile_h", "tile_w"],
    }


@pytest.mark.examples(2)
@pytest.mark.parametrize("bounds", [None, Bounds()], ids=["fixed", "search"])
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.label)
def test_valid_configs_can_run(layer, bounds):
    space = conv2d_space(layer, DEFAULT, bounds)
    assert 0 < len(space.valid_indices) < space.size
    for vector in space.sample(12, np.random.default_rng(0)):
        design, program = program_of(layer, DEFAULT, space.config(vector))
        assert simulate(program.instructions, design.geometry).cycles > 0
        assert bounds is not None or design.geometry == DEFAULT


def test_a_tile_has_as_many_output_blocks_as_fit():
    design = design_of(LAYERS[0], DEFAULT, CONFIG)
    assert (design.schedule.tile_co, design.schedule.tile_ci) == (4, 1)
    # With two threads over output channels, each has at most half of them.
    assert design_of(LAYERS[0], DEFAULT, CONFIG | {"oc_threading": 2}).schedule.tile_co == 2
    # Without padding, several blocks of input channels are loaded together if rows are complete.
    pointwise = Conv2d(1, 14, 14, 64, 64, (1, 1))
    assert design_of(pointwise, DEFAULT, CONFIG).schedule.tile_ci == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tile_b": 2}, "1 batch are not a multiple of the block's 2"),
        ({"tile_h": 5}, "tile_h 5 does not divide 14"),
        ({"tile_ci": 8}, "too deep for the fields"),
        ({"log_inp_buff_size": 16}, "too deep for the fields"),
        ({"tile_h": 14, "h_threading": 2}, "thread split"),
    ],
)
def test_invalid_configs_have_a_reason(change, reason):
    with pytest.raises(ConfigError, match=reason):
        design_of(LAYERS[0], DEFAULT, CONFIG | change)
    space = conv2d_space(LAYERS[0], DEFAULT, Bounds())
    assert space.rejection(CONFIG) is None
    if all(change.get(knob.name, knob.values[0]) in knob.values for knob in space.knobs):
        assert space.rejection(CONFIG | change) == "the accelerator cannot run it"


def test_channels_are_padded_to_full_blocks():
    config = CONFIG | {"tile_ci": 32, "tile_co": 128}
    design = design_of(LAYERS[0], DEFAULT, config)
    whole = pad_to_blocks(LAYERS[0], design.geometry)
    assert (whole.in_channels, whole.out_channels) == (64, 128)
    assert conv2d_space(LAYERS[0], DEFAULT, Bounds()).rejection(config) is None
    with pytest.raises(ConfigError, match="64 output channels are not a multiple"):
        check_schedule(LAYERS[0], design.schedule, design.geometry)


@pytest.mark.parametrize(
    ("bounds", "change", "worth"),
    [
        ({}, {}, 1),
        ({}, {"tile_ci": 64, "tile_co": 64}, 1 - 0.5 * (relative_area(Geometry(1, 64, 64)) - 2)),
        ({"penalty": 10.0}, {"tile_ci": 64, "tile_co": 64}, 0),
        ({"area_max": 10}, {"tile_ci": 32, "log_wgt_buff_size": 19}, 1 - 0.5 * 256 / 504),
        # A larger buffer can be compensated by a smaller one.
        ({"area_max": 10}, {"log_inp_buff_size": 16, "log_wgt_buff_size": 17}, 1),
    ],
)
def test_exceeding_the_bounds_lowers_the_worth(bounds, change, worth):
    space = conv2d_space(LAYERS[0], DEFAULT, Bounds(**{"penalty": 0.5, "penalty_form": "share"} | bounds))
    assert space.rejection(CONFIG | change) is None and space.worth(CONFIG | change) == pytest.approx(worth)


def test_the_papers_penalty_is_subtracted_from_the_speed():
    """Equation 5 is 1 / t - P, with both terms relative to VTA."""
    bounds, w = Bounds(area_max=1.0, penalty=2.0, penalty_form="difference"), LAYERS[0]
    space = conv2d_space(w, DEFAULT, bounds, frequency_hz=2e8)
    large = CONFIG | {"tile_ci": 32, "tile_co": 32}
    penalty = 2.0 * (relative_area(Geometry(1, 32, 32)) - 1.0)
    # VTA's matrix unit takes one cycle per block of 256 multiply-adds.
    unit = 2e8 / (14 * 14 * 64 * 64 * 9 / 256)
    assert unit_speed(w, 2e8) == pytest.approx(unit)
    vectors = np.array([space.vector(CONFIG), space.vector(large), space.vector(large)])
    speeds = np.array([3.0, 3.0, 0.5 * penalty]) * unit
    np.testing.assert_allclose(speeds * space.worths(vectors, 1 / speeds), [3 * unit, (3 - penalty) * unit, 0])
    # As a share, the same penalty subtracts more from faster configs.
    share = conv2d_space(w, DEFAULT, Bounds(area_max=1.0, penalty=0.5, penalty_form="share"))
    left = 1 - 0.5 * (relative_area(Geometry(1, 32, 32)) - 1.0)
    np.testing.assert_allclose(share.worths(vectors, 1 / speeds), [1, left, left])


@pytest.mark.guard
@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_a_buffer_only_limits_the_schedule(data):
    """Cycles depend on a buffer's size only through the tiles, so each program is simulated only once."""
    w, base = data.draw(st.sampled_from(LAYERS)), data.draw(st.sampled_from([DEFAULT, Geometry(variant="vta++")]))
    space = conv2d_space(w, base, Bounds())
    index = data.draw(st.sampled_from(space.valid_indices.tolist()))
    config = space.config(space.vectors([index])[0])
    columns = {knob.name: np.array([config[knob.name]] * 125) for knob in space.knobs}
    sizes = np.stack(np.meshgrid(*(knob.table for knob in space.knobs if knob.name in BUFFERS)), axis=-1).reshape(-1, 3)
    columns |= dict(zip(BUFFERS, sizes.T, strict=True))
    programs = programs_of(w, base, columns)
    own = programs_of(w, base, {name: np.array([value]) for name, value in config.items()})[0]
    others = [config | dict(zip(BUFFERS, size, strict=True)) for size in sizes[(programs == own).all(axis=1)].tolist()]
    assert config in others

    def run(config):
        design, program = program_of(w, base, config)
        cycles = simulate(program.instructions, design.geometry).cycles
        return design.program, list(program.instructions), program.uops, cycles

    assert run(data.draw(st.sampled_from(others))) == run(config)


def test_configs_with_different_programs_are_distinguished():
    space = conv2d_space(LAYERS[1], DEFAULT, Bounds())
    vectors = space.vectors(np.random.default_rng(0).choice(space.valid_indices, 300, replace=False))
    rows = [tuple(row) for row in programs_of(LAYERS[1], DEFAULT, space.columns(vectors)).tolist()]
    programs = [design_of(LAYERS[1], DEFAULT, space.config(vector)).program for vector in vectors]
    assert 50 < len(set(rows)) == len(set(programs)) == len(set(zip(rows, programs, strict=True))) < 300
    assert len(set(space.identities(vectors).tolist())) == len(set(rows))


def test_features_show_which_buffers_one_block_overflows():
    """A config with a share above 1, whose logarithm log2(1 + share) is above 1, cannot run."""
    layer = LAYERS[1]
    space = conv2d_space(layer, DEFAULT, Bounds(), is_open=True)
    vectors = space.sample(600, np.random.default_rng(0))
    found = dict(zip(space.feature_names, space.features(vectors).T, strict=True))
    overflows = np.max([found[f"{name}.share"] for name in ("inp", "wgt", "acc")], axis=0) > 1
    runs = np.array([can_run(partial(design_of, layer, DEFAULT, space.config(vector))) for vector in vectors])
    assert not (overflows & runs).any() and 20 < runs.sum() and overflows.sum() > 100
    at = int(np.flatnonzero(runs)[0])
    config = space.config(vectors[at])
    pixels = config["tile_h"] * config["tile_w"] * config["h_threading"] * config["oc_threading"]
    share = 4 * pixels * config["tile_b"] * config["tile_co"] / 2 ** config["log_acc_buff_size"]
    assert found["acc.share"][at] == pytest.approx(np.log2(1 + share), rel=1e-6)


def test_no_search_tries_two_configs_of_one_program():
    """Of configs that differ only in unused buffer space, the one with the smallest buffers represents all."""
    space = conv2d_space(LAYERS[1], DEFAULT, Bounds())
    sampled = space.sample(space.size, np.random.default_rng(0))
    identities = space.identities(sampled)
    assert len(np.unique(identities)) == len(sampled) < len(space.valid_indices) / 4
    assert not np.isin(
        space.identities(space.sample(100, np.random.default_rng(1), identities[:-50])), identities[:-50]
    ).any()
    larger = space.vectors(space.valid_indices)
    buffers = [position for position, knob in enumerate(space.knobs) if knob.name in BUFFERS]
    first_equivalents = space.first_equivalents(larger)
    np.testing.assert_array_equal(space.identities(first_equivalents), space.identities(larger))
    assert (first_equivalents[:, buffers] <= larger[:, buffers]).all()


@pytest.mark.parametrize("layer", LAYERS[:2], ids=lambda layer: layer.label)
def test_the_default_is_decent(layer):
    space = conv2d_space(layer, DEFAULT)

    def cycles(config):
        return simulate(program_of(layer, DEFAULT, config)[1].instructions, DEFAULT).cycles

    every = [cycles(space.config(vector)) for vector in space.vectors(space.valid_indices)]
    assert cycles(default_config(layer, DEFAULT)) <= np.quantile(every, 0.25)


def test_a_convolution_that_cannot_run_is_an_error():
    with pytest.raises(ConfigError, match="cannot run this convolution with any config"):
        default_config(Conv2d(1, 14, 14, 64, 64, (3, 3), padding=(16, 16, 16, 16)), Geometry())
