"""The choice of programs for a workload on the CPU: their parts, versions, spaces and defaults."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from anole.space import ALGORITHM
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cpu.target import CpuTarget
from anole.targets.cpu.templates.programs import VERSIONS, in_target_precision, program_parts
from anole.targets.cpu.templates.winograd_space import winograd_space
from anole.task import BatchMatmul, Conv2d, Dense, Workload

from .cases import AMX_FEATURES, AVX512

PROCESSOR = describe_cpu("skylake-avx512", threads=2, model="any")
TARGET, EXACT = CpuTarget(PROCESSOR), CpuTarget({**PROCESSOR, "exact": True})
AMX = CpuTarget({**PROCESSOR, "features": [*PROCESSOR["features"], *AMX_FEATURES]})
AMX_OPEN = CpuTarget({**AMX.description, "space": "open"})
LAYER = Conv2d(1, 28, 28, 32, 32, (3, 3), padding=(1, 1, 1, 1))
BYTE_LAYER = replace(LAYER, in_channels=64, dtype="uint8")
POINTWISE = Conv2d(1, 3, 5, 512, 512, (1, 1))
DILATED = replace(LAYER, padding=(12, 12, 12, 12), dilation=(12, 12))


@pytest.mark.parametrize(
    ("workload", "parts"),
    [
        (LAYER, "winograd"),
        (replace(LAYER, kernel=(5, 5)), "winograd"),
        (replace(LAYER, batch=3, padding=(0, 1, 2, 3)), "winograd"),
        (replace(LAYER, padding=(2, 2, 2, 2), dilation=(2, 2)), "winograd"),
        (replace(LAYER, exact=True), ""),
        (replace(LAYER, kernel=(1, 1)), ""),
        (replace(LAYER, kernel=(7, 7)), ""),
        (replace(LAYER, kernel=(3, 5)), ""),
        (replace(LAYER, strides=(1, 2)), ""),
        (DILATED, "idle winograd"),
        (replace(LAYER, in_channels=1024, strides=(2, 2)), "gap prefetch"),
        (replace(LAYER, groups=2), ""),
        (replace(LAYER, groups=8), "grouped"),
        (replace(LAYER, groups=32), "depthwise"),
        (replace(LAYER, groups=32, out_channels=64), "depthwise grouped"),
        (replace(LAYER, groups=32, out_channels=512), "depthwise"),
        (replace(LAYER, height=8, width=8, groups=32), "depthwise sharing"),
        (Conv2d(1, 14, 14, 128, 128, (5, 5), padding=(2, 2, 2, 2), groups=128), "depthwise gap"),
        (POINTWISE, "prefetch"),
        (replace(POINTWISE, out_channels=496), ""),
        (Conv2d(1, 72, 72, 64, 80, (1, 1)), ""),
        (Conv2d(1, 73, 73, 64, 80, (1, 1)), "cover"),
        # Depthwise convolutions do not round up the number of pixels.
        (replace(LAYER, width=73, in_channels=64, out_channels=64, groups=64), "depthwise"),
        (Conv2d(1, 8, 8, 16, 32, (1, 1)), "sharing"),
        (Dense(196, 64, 96), ""),
        (Dense(197, 64, 96), "cover"),
        (Dense(7, 500, 600), "prefetch"),
        (Dense(1, 500, 600), ""),
        (Dense(8, 500, 512), ""),
        (Dense(32, 500, 600), ""),
        (Dense(1, 64, 64), "sharing"),
        (Dense(1, 1 << 14, 64), ""),
        (BatchMatmul(2, 196, 64, 197), ""),
        (BatchMatmul(2, 197, 64, 197), "cover"),
        (BatchMatmul(1, 16, 32, 32), "sharing"),
    ],
    ids=lambda value: value.label if isinstance(value, Workload) else value or "plain",
)
def test_the_version_is_the_sum_of_its_parts(workload: Workload, parts: str) -> None:
    common = {"cover", "sharing"}
    names = {part if part in common else f"{workload.operator}.{part}" for part in parts.split()}
    assert set(program_parts(TARGET.unit, workload, exact=False, is_open=False)) == {workload.operator, *names}
    assert TARGET.template_version(workload) == VERSIONS[workload.operator] + sum(VERSIONS[name] for name in names)
    space, choices = TARGET.space(workload), {"direct", "winograd"} if "winograd" in parts else {""}
    assert set(space.algorithms) == choices
    assert any(knob.name in ("prefetch", "prefetch_k") for knob in space.knobs) == ("prefetch" in parts)


@pytest.mark.parametrize(
    ("workload", "algorithms"),
    [
        (BYTE_LAYER, {"direct", "tiles"}),
        (replace(BYTE_LAYER, dtype="bfloat16"), {""}),
        (replace(BYTE_LAYER, in_channels=128, groups=2), {""}),
        (Dense(9, 64, 96, "uint8"), {"direct", "tiles"}),
        (Dense(9, 64, 96, "bfloat16"), {""}),
    ],
    ids=lambda value: value.label if isinstance(value, Workload) else "",
)
def test_tiles_are_a_choice_if_vectors_are_fast(workload: Conv2d | Dense, algorithms: set[str]) -> None:
    has_tiles = getattr(workload, "groups", 1) == 1
    assert set(AMX.space(workload).algorithms) == algorithms
    assert AMX.space(workload).rejection(AMX.default_config(workload)) is None
    assert ("tiles" in program_parts(AMX.unit, workload, exact=False, is_open=False)) == has_tiles
    assert AMX.template_version(workload) == TARGET.template_version(workload) + VERSIONS["tiles"] * has_tiles
    assert set(TARGET.space(workload).algorithms) == set(AMX_OPEN.space(workload).algorithms) == {""}
    assert TARGET.template_version(workload) + 1 == AMX_OPEN.template_version(workload)


@pytest.mark.parametrize(
    ("workload", "algorithm"),
    [
        (BYTE_LAYER, "tiles"),
        (replace(BYTE_LAYER, height=1, width=1, kernel=(1, 1), padding=(0, 0, 0, 0)), "direct"),
        (replace(BYTE_LAYER, in_channels=8, kernel=(1, 1), padding=(0, 0, 0, 0)), "direct"),
        (replace(BYTE_LAYER, in_channels=8), "tiles"),
        (Dense(4, 512, 512, "uint8"), "direct"),
        (Dense(5, 512, 512, "uint8"), "tiles"),
    ],
    ids=lambda value: value.label if isinstance(value, Workload) else value,
)
def test_the_default_uses_tiles_if_they_are_filled(workload: Conv2d | Dense, algorithm: str) -> None:
    assert AMX.default_config(workload)[ALGORITHM] == algorithm


def test_with_amx_only_tiles_multiply_bfloat16() -> None:
    grouped = replace(LAYER, groups=2)
    for layer, in_vectors, in_tiles in (
        (LAYER, "float32", "bfloat16"),  # Winograd's method is faster than vectors.
        (grouped, "bfloat16", "float32"),
        (Dense(9, 64, 96), "bfloat16", "bfloat16"),
    ):
        found = [in_target_precision(target.unit, 2, layer, "bfloat16").dtype for target in (TARGET, AMX)]
        assert found == [in_vectors, in_tiles]


def test_versions_of_already_tuned_tasks_stay() -> None:
    tuned = (LAYER, POINTWISE, Dense(7, 500, 600), BatchMatmul(2, 9, 9, 9))
    assert list(map(TARGET.template_version, tuned)) == [5, 4, 3, 3]


def test_an_exact_target_has_no_choice() -> None:
    assert EXACT.space(LAYER).algorithms == ("",)
    assert EXACT.space(LAYER).rejection(EXACT.default_config(LAYER)) is None
    assert EXACT.template_version(LAYER) == 1


@pytest.mark.parametrize(
    ("change", "algorithm"),
    [
        ({}, "winograd"),
        ({"kernel": (5, 5)}, "winograd"),
        ({"batch": 3, "padding": (0, 1, 2, 3)}, "winograd"),
        ({"padding": (2, 2, 2, 2), "dilation": (2, 2)}, "winograd"),
        # Transforms dominate with few channels or tiles.
        ({"in_channels": 3}, "direct"),
        ({"height": 4, "width": 4, "in_channels": 64, "out_channels": 64}, "direct"),
        ({"in_channels": 8}, "winograd"),
        ({"out_channels": 8}, "winograd"),
        ({"height": 8, "width": 8}, "winograd"),
        ({"kernel": (1, 1)}, None),
    ],
    ids=str,
)
def test_the_default_is_the_faster_algorithm(change: dict[str, Any], algorithm: str | None) -> None:
    assert TARGET.default_config(replace(LAYER, **change)).get(ALGORITHM) == algorithm


@pytest.mark.parametrize(
    ("layer", "size"), [((64, 56), 172_368), ((128, 28), 240_840), ((256, 14), 170_856), ((512, 7), 62_208)]
)
def test_winograd_spaces_of_a_residual_network_have_the_expected_size(layer: tuple[int, int], size: int) -> None:
    channels, side = layer
    workload = Conv2d(1, side, side, channels, channels, (3, 3), padding=(1, 1, 1, 1))
    assert len(winograd_space(AVX512, 2, workload)) == size


def test_samples_are_balanced_among_tile_sizes_and_direct_convolution() -> None:
    space = TARGET.space(Conv2d(1, 14, 14, 256, 256, (3, 3), padding=(1, 1, 1, 1)))
    configs = map(space.config, space.sample(16, np.random.default_rng(0)))
    assert Counter(config.get("tile_size") for config in configs) == {None: 4, 2: 4, 4: 4, 6: 4}
