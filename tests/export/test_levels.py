"""Instruction-set levels: the levels that a build can have, and the features that they require."""

from __future__ import annotations

from itertools import pairwise

import pytest

from anole.errors import ExportError
from anole.export.levels import choose_levels
from anole.targets.cpu.settings import describe_cpu


def names(mcpu: str, *wanted: str) -> list[str]:
    return [level.name for level in choose_levels(describe_cpu(mcpu, 1, "elsewhere"), wanted)]


@pytest.mark.parametrize(
    ("mcpu", "expected"),
    [
        ("znver4", ["znver4", "x86-64-v4", "x86-64-v3", "x86-64-v2"]),
        ("haswell", ["haswell", "x86-64-v3", "x86-64-v2"]),
        ("x86-64-v4", ["x86-64-v4", "x86-64-v3", "x86-64-v2"]),
        ("x86-64-v2", ["x86-64-v2"]),
    ],
)
def test_lower_levels_are_supported_by_the_tuned_processor(mcpu: str, expected: list[str]) -> None:
    assert names(mcpu) == expected


def test_each_level_requires_more_features_than_the_next() -> None:
    levels = choose_levels(describe_cpu("sapphirerapids", 1, "elsewhere"))
    for better, worse in pairwise(levels):
        assert set(better.bits) > set(worse.bits)
    assert {"avx512fp16", "avxvnni", "gfni"} <= levels[0].features
    assert levels[-1].features == {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}


def test_the_best_level_requires_all_features_of_the_description() -> None:
    description = describe_cpu("rocketlake", 1, "elsewhere")
    more = {**description, "features": [*description["features"], "avx512_bf16", "amx_tile"]}
    plain, extended = (choose_levels(each) for each in (description, more))
    assert extended[0].features - plain[0].features == {"avx512bf16"}
    assert [level.features for level in extended[1:]] == [level.features for level in plain[1:]]


def test_levels_can_be_chosen() -> None:
    assert names("znver4", "x86-64-v2", "tuned") == ["znver4", "x86-64-v2"]
    with pytest.raises(ExportError, match="found level x86-64-v4; this build can have tuned and haswell, x86-64-v3"):
        names("haswell", "x86-64-v4")
    with pytest.raises(ExportError, match="found a build for x86-64; only builds for x86-64-v2 and better"):
        names("x86-64")
