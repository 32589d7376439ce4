"""The variants: that all are tuners, and that controls differ in their samplers alone; how far a run goes at once."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from benchmarks.search.tuners import levels
from benchmarks.search.variants import VARIANTS, chosen, sized_as, tuner_of

CONTROLS = [variant for variant in VARIANTS if sized_as(variant)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_a_tuner_that_can_be_asked_for(variant: str) -> None:
    settings = tuner_of(variant)
    assert settings.preset == VARIANTS[variant]["preset"]
    assert chosen(variant, VARIANTS) == [variant]


@pytest.mark.parametrize("variant", CONTROLS)
def test_a_control_differs_from_its_variant_in_its_sampler_alone(variant: str) -> None:
    other, control = sized_as(variant), tuner_of(variant, [16, 24])
    assert other is not None and sized_as(other) is None
    assert list(VARIANTS).index(other) < list(VARIANTS).index(variant), "it runs first"
    assert replace(control, sampler=tuner_of(other).sampler) == tuner_of(other)
    assert list(control.to_json()["sampler"]["sizes"]) == [16, 24]


def test_adatunes_four_schemes_differ_in_one_part_each() -> None:
    schemes = [tuner_of(name).to_json() for name in ("XGB+SA+DE", "RFEI+SA+DE", "RFEI+CSA+DE", "RFEI+CSA+CV")]
    assert {settings["batch"] for settings in schemes} == {32}
    roles = [
        {role for role in ("explorer", "sampler", "surrogate", "evaluator") if one[role] != other[role]}
        for one, other in itertools.pairwise(schemes)
    ]
    assert roles == [{"surrogate"}, {"explorer", "sampler"}, {"evaluator"}]


def test_chameleons_baseline_chooses_by_score_alone() -> None:
    sampler, explorer = tuner_of("SA+greedy").sampler, tuner_of("SA+greedy").explorer
    assert sampler.diversity_ratio is None and explorer.n_candidates == explorer.patience_over == 64


def test_a_run_looks_at_the_clock_every_few_trials() -> None:
    assert levels(320, 64) == [64, 128, 192, 256, 320]
    assert levels(100, 64) == [64, 100] and levels(64, 64) == [64] and levels(64, 192) == [64]
