"""Which convolutions have a choice of algorithms on the CPU, and what it changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anole.space import ALGORITHM
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.targets.cpu.templates.winograd_space import winograd_space
from anole.targets.shared.reference import weight_shape
from anole.task import Conv2d

PROCESSOR = {**describe_cpu(), "threads": 2}
TARGET, EXACT = CpuTarget(PROCESSOR), CpuTarget({**PROCESSOR, "exact": True})
LAYER = Conv2d(1, 28, 28, 32, 32, (3, 3), padding=(1, 1, 1, 1))


@pytest.mark.parametrize(
    "workload",
    [
        LAYER,
        replace(LAYER, kernel=(5, 5)),
        replace(LAYER, batch=3, padding=(0, 1, 2, 3)),
        replace(LAYER, padding=(2, 2, 2, 2), dilation=(2, 2)),
    ],
)
def test_square_kernels_have_a_choice(workload: Conv2d) -> None:
    assert TARGET.space(workload).algorithms == ("direct", "winograd")
    assert TARGET.default_config(workload)[ALGORITHM] == "winograd"
    assert TARGET.template_version(workload) == 5


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": (1, 1)},
        {"kernel": (7, 7)},
        {"kernel": (3, 5)},
        {"strides": (1, 2)},
        {"groups": 2},
    ],
    ids=str,
)
def test_other_convolutions_are_as_they_would_be_without_it(change: dict[str, Any]) -> None:
    workload = replace(LAYER, **change)
    assert ALGORITHM not in {knob.name for knob in TARGET.space(workload).knobs}
    assert ALGORITHM not in TARGET.default_config(workload)
    assert TARGET.template_version(workload) == 1


def test_an_exact_target_has_none() -> None:
    assert EXACT.space(LAYER).algorithms == ("",)
    assert EXACT.space(LAYER).rejection(EXACT.default_config(LAYER)) is None
    assert EXACT.template_version(LAYER) == 1


def test_an_exact_convolution_has_none() -> None:
    workload = replace(LAYER, exact=True)
    assert TARGET.space(workload).algorithms == ("",)
    assert TARGET.template_version(workload) == 1


def test_weights_of_one_shape_are_packed_alike() -> None:
    space, template, packed = TARGET.space(LAYER), TARGET.template(LAYER), dict[tuple[int, ...], Any]()
    weight = np.random.default_rng(0).standard_normal(weight_shape(LAYER), dtype=np.float32)
    for vector in space.sample(60, np.random.default_rng(0)):
        config = space.config(vector)
        shape, made = template.packed_shape(LAYER, config), template.pack_weight(LAYER, config, weight)
        np.testing.assert_array_equal(made, packed.setdefault(shape, made))
    assert {shape[1] for shape in packed} == {3, 4, 6, 8}


@pytest.mark.parametrize(
    "workload",
    [replace(LAYER, in_channels=3), replace(LAYER, height=4, width=4, in_channels=64, out_channels=64)],
    ids=["few channels", "few tiles"],
)
def test_where_transforms_cost_most_the_default_is_direct(workload: Conv2d) -> None:
    assert TARGET.default_config(workload)[ALGORITHM] == "direct"


@pytest.mark.parametrize(
    "workload",
    [replace(LAYER, in_channels=8), replace(LAYER, out_channels=8), replace(LAYER, height=8, width=8)],
    ids=["channels", "filters", "tiles"],
)
def test_where_there_are_not_so_few_it_is_not(workload: Conv2d) -> None:
    assert TARGET.default_config(workload)[ALGORITHM] == "winograd"


@pytest.mark.parametrize(
    ("layer", "size"), [((64, 56), 172_368), ((128, 28), 240_840), ((256, 14), 170_856), ((512, 7), 62_208)]
)
def test_how_large_the_spaces_of_a_residual_network_are(layer: tuple[int, int], size: int) -> None:
    channels, side = layer
    workload = Conv2d(1, side, side, channels, channels, (3, 3), padding=(1, 1, 1, 1))
    assert len(winograd_space(VectorUnit(16, 32), 2, workload)) == size


def test_a_sample_has_as_many_of_every_tile_size_as_direct_ones() -> None:
    space = TARGET.space(Conv2d(1, 14, 14, 256, 256, (3, 3), padding=(1, 1, 1, 1)))
    configs = map(space.config, space.sample(16, np.random.default_rng(0)))
    assert Counter(config.get("tile_size") for config in configs) == {None: 4, 2: 4, 4: 4, 6: 4}
