"""Packed weights: one set of copies for each layout, which all kernels that read it share in turns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anole.record import Config
from anole.targets import get_device
from anole.targets.cpu.device.runner import WeightCopies
from anole.targets.cpu.settings import describe_cpu
from anole.task import Dense

WORKLOAD = Dense(1, 8, 256)
WEIGHT: NDArray[np.float32] = np.arange(8 * 256, dtype=np.float32).reshape(8, 256)
TARGET = get_device(describe_cpu())


def copies(cold_bytes: int, workload: Dense = WORKLOAD, weight: NDArray[np.float32] = WEIGHT) -> WeightCopies:
    return WeightCopies(TARGET.template(workload), workload, weight, cold_bytes)


def config_of_panel(vectors: int, workload: Dense = WORKLOAD) -> Config:
    """A config whose panels are so many registers wide; only its layout matters here."""
    width = vectors * TARGET.unit.lanes
    return {**TARGET.default_config(workload), "tile_x": [workload.out_features // width, 1, width]}


def test_kernels_of_one_layout_take_turns_on_the_same_copies() -> None:
    weights = copies(cold_bytes=2 * WEIGHT.nbytes)
    one, other = weights.of(config_of_panel(2)), weights.of({**config_of_panel(2), "tile_k": [1, 8]})
    met = [id(next(one)), id(next(other)), id(next(one)), id(next(other))]
    assert len(set(met[:3])) == 3
    assert met[3] == met[0]


def test_a_weight_larger_than_the_cache_is_not_read_twice_in_a_row() -> None:
    weights = copies(cold_bytes=WEIGHT.nbytes // 2).of(config_of_panel(2))
    assert next(weights) is not next(weights)


def test_every_layout_is_packed_as_its_template_packs_it() -> None:
    weights, template = copies(cold_bytes=0), TARGET.template(WORKLOAD)
    for config in (config_of_panel(1), config_of_panel(2), config_of_panel(1)):
        np.testing.assert_array_equal(next(weights.of(config)).numpy(), template.pack_weight(WORKLOAD, config, WEIGHT))


def test_what_is_kept_is_bounded() -> None:
    workload = Dense(1, 512, 1024)
    weights = copies(1 << 30, workload, np.zeros((512, 1024), np.float32))
    first = weights.of(config_of_panel(1, workload))
    assert weights.of(config_of_panel(1, workload)) is first
    weights.of(config_of_panel(2, workload))
    assert weights.of(config_of_panel(1, workload)) is not first
