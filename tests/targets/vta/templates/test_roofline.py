"""The accelerator's roofline: nothing is faster, and it ranks configs nearly as the simulator does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from anole.targets.vta.settings import describe_vta
from anole.targets.vta.target import VtaTarget
from anole.targets.vta.templates.design import tiles_of
from anole.targets.vta.templates.roofline import least_cycles, traffic
from anole.task import Conv2d

LAYERS = [
    Conv2d(1, 14, 14, 64, 64, (3, 3), padding=(1, 1, 1, 1)),
    Conv2d(4, 14, 14, 32, 128, (1, 1), strides=(2, 2)),
]
SEARCHED = VtaTarget(describe_vta(hardware="search"))


def drawn(target: VtaTarget, layer: Conv2d, n: int):
    space = target.space(layer)
    vectors = space.sample(n, np.random.default_rng(0))
    cycles = np.array([target.cycles(layer, space.config(vector)) for vector in vectors])
    return space, vectors, space.columns(vectors), cycles


@pytest.mark.parametrize("layer", LAYERS)
def test_no_config_computes_faster_and_most_rank_alike(layer):
    _, _, columns, cycles = drawn(SEARCHED, layer, 60)
    tile_co = tiles_of(layer, SEARCHED.geometry, columns)[1]
    least = least_cycles(layer, columns, tile_co, SEARCHED.geometry.bus_bytes)
    assert (traffic(layer, columns, tile_co, 8)["gemm"] <= cycles).all()
    assert spearmanr(least, cycles)[0] > 0.8


@pytest.mark.parametrize("form", ["difference", "share"])
@pytest.mark.parametrize("layer", LAYERS)
def test_merit_is_what_a_config_is_expected_to_be_worth(layer, form):
    """It ranks configs nearly as the cost does that a search minimises, penalties included."""
    target = VtaTarget(describe_vta(hardware="search", penalty_form=form))
    space, vectors, columns, cycles = drawn(target, layer, 60)
    latencies_s = cycles / target.frequency_hz
    worth = space.worths(vectors, latencies_s) / latencies_s
    assert space.merit is not None and spearmanr(space.merit(columns)[worth > 0], worth[worth > 0])[0] > 0.7


def test_fixed_hardware_has_a_merit_and_an_open_space_none():
    fixed = VtaTarget(describe_vta())
    space, _, columns, cycles = drawn(fixed, LAYERS[0], 20)
    assert space.merit is not None and spearmanr(space.merit(columns), -cycles)[0] > 0.8
    assert VtaTarget(describe_vta(space="open")).space(LAYERS[0]).merit is None
