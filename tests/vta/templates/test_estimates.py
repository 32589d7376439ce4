"""Estimates of many configs: tiles match `check_schedule`, and the roofline ranks configs nearly like cycles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from anole.errors import ConfigError
from anole.task import Conv2d
from anole_vta.geometry import DEFAULT, Geometry
from anole_vta.settings import describe_vta
from anole_vta.target import VtaTarget
from anole_vta.templates.conv2d import SHIFT_AND_CLIP, Bias, Residual, Schedule, check_schedule
from anole_vta.templates.design import EPILOGUE, pad_to_blocks, tiles_of
from anole_vta.templates.estimates import MappedConfigs, blocks_that_fit, divisors, min_cycles, resource_limits, traffic

from ...examples import examples

SAME = (1, 1, 1, 1)
SMALL = [
    Conv2d(1, 14, 14, 64, 64, (3, 3), padding=SAME),
    Conv2d(2, 14, 14, 64, 96, (1, 1)),
    Conv2d(1, 14, 14, 64, 128, (1, 1), (2, 2)),
    Conv2d(4, 9, 9, 40, 32, (3, 3)),
    Conv2d(1, 1, 6, 512, 250, (1, 1)),
    Conv2d(1, 12, 12, 32, 32, (12, 3), padding=(0, 1, 0, 1)),
]
SHALLOW = Geometry(inp_bytes=1 << 12, wgt_bytes=1 << 14, acc_bytes=1 << 13)
RESIDUAL = (Bias(), Residual(), *SHIFT_AND_CLIP)


def by_trying(w, geometry, threads, tiles, epilogue):
    """Return the blocks of input and of output channels of a tile, by trying schedules."""
    w = pad_to_blocks(w, geometry)

    def fits(ci, co):
        try:
            check_schedule(w, Schedule(*tiles, ci, co, *threads), geometry, epilogue)
        except ConfigError:
            return False
        return True

    if w.batch % geometry.batch or not fits(1, 1):
        return 0, 0
    tile_co = max(co for co in divisors(w.out_channels // geometry.block_out) if fits(1, co))
    return max(ci for ci in divisors(w.in_channels // geometry.block_in) if fits(ci, tile_co)), tile_co


def by_blocks_that_fit(w, configs, epilogue):
    """Return the same for configs given as (geometry, threads, tiles), by `blocks_that_fit`."""
    columns = np.array([(*threads, *tiles) for _, threads, tiles in configs]).T
    mapped = MappedConfigs(*resource_limits([geometry for geometry, _, _ in configs]).T, *columns)
    return list(zip(*(blocks.tolist() for blocks in blocks_that_fit(w, mapped, epilogue)), strict=True))


@pytest.mark.parametrize("epilogue", [EPILOGUE, RESIDUAL], ids=["bias", "residual"])
@pytest.mark.parametrize("w", SMALL, ids=lambda w: w.label)
def test_as_many_blocks_as_fit(w, epilogue):
    geometries = [DEFAULT, SHALLOW, Geometry(1, 32, 64), Geometry(2, 16, 16)]
    tiles = itertools.product(divisors(w.out_height), divisors(w.out_width))
    configs = list(itertools.product(geometries, itertools.product((1, 2), (1, 2)), tiles))
    expected = [by_trying(w, *config, epilogue) for config in configs]
    assert by_blocks_that_fit(w, configs, epilogue) == expected
    assert len(set(expected)) > 2 and (0, 0) in expected


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_as_many_blocks_as_fit_for_any_convolution(data):
    draw = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    kernel, pad = (draw(1, 2, 3, 5), draw(1, 3)), draw(0, 0, 1, 2)
    w = Conv2d(
        *(draw(1, 2, 4), data.draw(st.integers(5, 30)), data.draw(st.integers(5, 30)), draw(16, 24, 64, 384)),
        *(draw(16, 40, 128, 1000), kernel, (draw(1, 2), draw(1, 2)), (pad, pad, pad, draw(0, pad))),
    )
    geometry = Geometry(draw(1, 2), draw(16, 32), draw(16, 32, 64), inp_bytes=1 << draw(10, 13, 15), wgt_bytes=1 << 16)
    tiles = (draw(*divisors(w.out_height)), draw(*divisors(w.out_width)))
    config = (geometry, (draw(1, 2), draw(1, 2)), tiles)
    epilogue = draw(EPILOGUE, RESIDUAL, SHIFT_AND_CLIP)
    assert by_blocks_that_fit(w, [config], epilogue) == [by_trying(w, *config, epilogue)]


@pytest.mark.parametrize(
    "w",
    [
        Conv2d(1, 14, 14, 16, 16, (3, 3), padding=(16, 16, 16, 16)),
        Conv2d(1, 8, 8, 16, 16, (3, 3), dilation=(2, 2)),
        Conv2d(1, 8, 8, 16, 16, (3, 3), groups=16),
        Conv2d(1, 256, 256, 16, 16, (1, 1)),
    ],
    ids=["wide border", "dilated", "grouped", "too large"],
)
def test_nothing_fits_what_cannot_be_lowered(w):
    config = (DEFAULT, (1, 1), (1, 1))
    assert by_blocks_that_fit(w, [config], EPILOGUE) == [(0, 0)] == [by_trying(w, *config, EPILOGUE)]


def test_an_impossible_accelerator_runs_nothing():
    mapped = MappedConfigs(*resource_limits([None, DEFAULT]).T, *np.ones((4, 2), dtype=np.int64))
    assert [blocks.tolist() for blocks in blocks_that_fit(SMALL[0], mapped, EPILOGUE)] == [[0, 1], [0, 1]]


LAYERS = [Conv2d(1, 14, 14, 64, 64, (3, 3), padding=(1, 1, 1, 1)), Conv2d(4, 14, 14, 32, 128, (1, 1), strides=(2, 2))]
SEARCHED = VtaTarget(describe_vta(hardware="search"))


def simulated_sample(target: VtaTarget, layer: Conv2d, n: int):
    space = target.space(layer)
    vectors = space.sample(n, np.random.default_rng(0))
    cycles = np.array([target.cycles(layer, space.config(vector)) for vector in vectors])
    return space, vectors, space.columns(vectors), cycles


@pytest.mark.parametrize("layer", LAYERS)
def test_no_config_is_faster_than_its_roofline_and_ranks_are_similar(layer):
    _, _, columns, cycles = simulated_sample(SEARCHED, layer, 60)
    tile_co = tiles_of(layer, SEARCHED.geometry, columns)[1]
    estimated = min_cycles(layer, columns, tile_co, SEARCHED.geometry.bus_bytes)
    assert (traffic(layer, columns, tile_co, 8)["gemm"] <= cycles).all()
    assert spearmanr(estimated, cycles)[0] > 0.8


@pytest.mark.parametrize("form", ["difference", "share"])
@pytest.mark.parametrize("layer", LAYERS)
def test_merit_estimates_the_worth_of_a_config(layer, form):
    """Merit ranks configs nearly like the cost that a search minimizes, including penalties."""
    target = VtaTarget(describe_vta(hardware="search", penalty_form=form))
    space, vectors, columns, cycles = simulated_sample(target, layer, 60)
    latencies_s = cycles / target.frequency_hz
    worth = space.worths(vectors, latencies_s) / latencies_s
    assert space.merit is not None and spearmanr(space.merit(columns)[worth > 0], worth[worth > 0])[0] > 0.7


def test_fixed_hardware_has_a_merit_and_an_open_space_none():
    fixed = VtaTarget(describe_vta())
    space, _, columns, cycles = simulated_sample(fixed, LAYERS[0], 20)
    assert space.merit is not None and spearmanr(space.merit(columns), -cycles)[0] > 0.8
    assert VtaTarget(describe_vta(space="open")).space(LAYERS[0]).merit is None
