"""The accelerator as a target: descriptions, supported operators, spaces and simulation."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.errors import ConfigError, TargetError
from anole.measure.measurer import SimulatedMeasurer
from anole.record import Status, Trial, utc_now
from anole.search.confirm import fastest
from anole.search.roles import History
from anole.task import BatchMatmul, Conv2d, Dense, Task
from anole_vta.area import Bounds, unit_speed
from anole_vta.geometry import DEFAULT, Geometry
from anole_vta.settings import describe_vta
from anole_vta.simulator.timing import simulate
from anole_vta.target import VtaTarget, as_conv2d
from anole_vta.templates.conv2d import lower_conv2d
from anole_vta.templates.design import EPILOGUE, design_of, pad_to_blocks

from ..examples import examples

CONV = Conv2d(1, 8, 8, 16, 24, (3, 3), padding=(1, 1, 1, 1))


def make(**settings):
    return VtaTarget(describe_vta(**settings))


def test_defaults_are_vta_and_only_searches_have_bounds():
    own = {"kind": "vta", "geometry": DEFAULT.to_json(), "frequency_mhz": 100.0, "first_layer": "host"}
    assert describe_vta() == describe_vta("default") == describe_vta({"batch": 1}) == {**own, "hardware": "fixed"}
    assert make().bounds is None
    searched = {**own, "hardware": "search", "area_max": 3.0, "memory_max": 1.0, "penalty": 1.0}
    for form in ({}, {"penalty_form": "difference"}):
        assert describe_vta(hardware="search", area_max=3, **form) == searched
    assert VtaTarget(searched).bounds == Bounds(area_max=3.0)
    assert make(hardware="search", penalty_form="share").bounds == Bounds(penalty_form="share")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hardware": "found"}, "hardware: found 'found'; allowed are fixed, search"),
        ({"hardware": "search", "penalty_form": "both"}, "penalty_form: found 'both'; allowed are difference, share"),
        ({"penalty_form": "share"}, "penalty_form: is allowed only with `hardware: search`"),
        ({"space": "wide"}, "space: found 'wide'; allowed are constrained, open"),
        ({"first_layer": "gpu"}, "first_layer: found 'gpu'; allowed are host, vta"),
        ({"geometry": "large"}, "geometry: found 'large'; use a name such as 1x16x16_i8w8a32_15_15_18_17"),
        ({"geometry": {"block_in": 24}}, "geometry.block_in: found 24; allowed is a power of two"),
        ({"area_max": 2}, "area_max: is allowed only with `hardware: search`; this hardware is fixed"),
        ({"penalty": 1, "hardware": "fixed"}, "penalty: is allowed only with `hardware: search`"),
        ({"hardware": "search", "area_max": 0}, "area_max: found 0; use a positive number"),
        ({"hardware": "search", "memory_max": "1"}, "memory_max: found '1'; use a positive number"),
        ({"hardware": "search", "penalty": True}, "penalty: found True; use a positive number"),
        *(
            ({"frequency_mhz": value}, "frequency_mhz: found .*; use a positive number")
            for value in (0, -1, "100", None, True, float("nan"), float("inf"), 10**400)
        ),
    ],
)
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(TargetError, match=message):
        describe_vta(**settings)


@given(st.fixed_dictionaries({}, optional={name: st.integers(0, 20) for name in Geometry().to_json() if "_" in name}))
def test_a_geometry_is_described_completely_or_refused(powers):
    fields = {name: 1 << power for name, power in powers.items()}
    try:
        description = describe_vta(geometry=fields)
    except TargetError:
        return
    assert json.loads(json.dumps(description)) == description
    assert VtaTarget(description).geometry == Geometry(**fields)


def test_the_first_convolution_runs_on_the_host_by_default():
    on_host, on_vta = make(), make(first_layer="vta")
    assert not on_host.takes(CONV, 0) and on_host.takes(CONV, 1)
    assert on_vta.takes(CONV, 0) and on_host.takes(Dense(1, 8, 8), 0)


@pytest.mark.parametrize(
    "workload",
    [
        Conv2d(1, 8, 8, 16, 16, (3, 3), groups=16),
        Conv2d(1, 8, 8, 16, 16, (3, 3), dilation=(2, 2)),
        Conv2d(1, 40, 40, 16, 16, (3, 3), padding=(16, 16, 16, 16)),
        replace(CONV, exact=True),
        Dense(1, 8, 8, exact=True),
        # This has no constant weight.
        BatchMatmul(1, 16, 16, 16),
    ],
)
def test_unsupported_operators_are_not_taken(workload):
    assert not make().takes(workload, 5)


def test_a_matrix_product_is_a_convolution_of_single_pixels():
    assert as_conv2d(Dense(3, 20, 50)) == Conv2d(1, 3, 1, 20, 50, (1, 1))
    assert as_conv2d(CONV) == CONV


def test_only_a_search_has_knobs_of_the_hardware():
    assert make().space(CONV).names_of("hardware") == []
    assert make(hardware="search").space(CONV).names_of("hardware") == [
        *("tile_ci", "tile_co"),
        *("log_inp_buff_size", "log_wgt_buff_size", "log_acc_buff_size"),
    ]
    # The batch of a block must divide the batch.
    searched = make(hardware="search")
    batches = {n: searched.space(replace(CONV, batch=n)).knobs[0].values for n in (1, 4, 6, 8)}
    assert batches == {1: (1,), 4: (1, 2, 4), 6: (1, 2), 8: (1, 2, 4, 8)}


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_seconds_are_the_cycles_of_the_canonical_program(data):
    workload = data.draw(st.sampled_from([CONV, Dense(2, 40, 24)]))
    target = make(hardware="search", frequency_mhz=250, memory_max=4)
    space = target.space(workload)
    config = space.config(space.vectors([data.draw(st.sampled_from(space.valid_indices.tolist()))])[0])
    w = as_conv2d(workload)
    design = design_of(w, DEFAULT, config)
    program = lower_conv2d(pad_to_blocks(w, design.geometry), design.schedule, design.geometry, EPILOGUE)
    cycles = simulate(program.instructions, design.geometry).cycles
    assert target.cycles(workload, config) == cycles
    assert target.simulate(workload, config) == cycles / 250e6
    assert target.geometry_of(config) == design.geometry
    there = target.with_geometry(design.geometry)
    assert there.cycles(workload, config) == cycles and there.bounds is None
    assert there.space(workload).rejection(config) is None


def test_an_open_space_includes_invalid_configs():
    """The constrained space excludes exactly the configs that the accelerator refuses."""
    assert describe_vta(space="constrained") == describe_vta() and "space" not in describe_vta()
    is_open, constrained = make(space="open"), make()
    assert is_open.description == {**describe_vta(), "space": "open"}
    space, within = is_open.space(CONV), constrained.space(CONV)
    assert len(space.valid_indices) == space.size == within.size > len(within.valid_indices)
    refused = set()
    for index in space.valid_indices:
        try:
            is_open.cycles(CONV, space.config(space.vectors([index])[0]))
        except ConfigError:
            refused.add(index)
    assert refused == set(range(space.size)) - set(within.valid_indices.tolist())


def test_an_open_search_for_hardware_has_every_block_and_rejects_some_with_a_reason():
    target = make(hardware="search", space="open")
    space = target.space(CONV)
    assert space.knobs[0].values == (1, 2, 4, 8) and space.size == 4 * make(hardware="search").space(CONV).size
    vectors = space.sample(40, np.random.default_rng(0))
    configs = [space.config(vector) for vector in vectors]
    measured = list(SimulatedMeasurer(Task(CONV, target.description, 2), target).measure(configs))
    assert {each.status for each in measured} == {Status.OK, Status.REJECTED}
    assert all(each.error for each in measured if each.status is Status.REJECTED)
    assert np.isfinite(space.discounts(vectors)).all()


def test_a_search_sees_speeds_after_the_penalty():
    """A search learns from, and selects by, the reward of equation 5 in units of the task's GFLOP/s."""
    target = make(hardware="search", area_max=1.2)
    space, rng = target.space(CONV), np.random.default_rng(0)
    vectors = space.sample(30, rng)
    configs = [space.config(vector) for vector in vectors]
    measured = list(SimulatedMeasurer(Task(CONV, target.description, 2), target).measure(configs))
    history = History(space, CONV.flop)
    history.add(vectors, measured)
    penalties = np.array([target.bounds.penalty_of(target.geometry_of(config)) for config in configs])
    speeds = np.array([1 / each.latency_s for each in measured])
    rewards = np.maximum(0.0, speeds - penalties * unit_speed(CONV, 1e8))
    assert (penalties > 0).any() and (rewards == 0).any() and (rewards > 0).any()
    np.testing.assert_allclose(history.gflops, rewards * CONV.flop / 1e9)
    trials = [
        Trial(n, 0, config, measurement, None, 0.0, utc_now())
        for n, (config, measurement) in enumerate(zip(configs, measured, strict=True))
    ]
    assert fastest(trials, space.worth)[0].number == np.argmax(rewards)
