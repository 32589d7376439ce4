"""The compared variants are valid, and controls differ only in their samplers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from anole.search.surrogate.gaussian_process import GaussianProcess
from anole.space import Space, option_knob
from benchmarks.search.variants import VARIANTS, sized_as, tuner_of
from kit.controls import PerfectExplorer

from ..search.conftest import history_of

CONTROLS = [variant for variant in VARIANTS if sized_as(variant)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_a_valid_tuner(variant: str) -> None:
    settings = tuner_of(variant)
    assert settings.preset == VARIANTS[variant]["preset"]


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


SPACE = Space([option_knob("a", list(range(30))), option_knob("b", list(range(30)))])


def test_a_perfect_explorer_proposes_the_highest_scores_of_the_space() -> None:
    vectors = np.array([[a, b] for a in range(0, 30, 3) for b in range(0, 30, 3)])
    history = history_of(SPACE, vectors, [1.0 + (a - 20) ** 2 / 50 + (b - 5) ** 2 / 50 for a, b in vectors])
    surrogate = GaussianProcess().start(SPACE)
    surrogate.fit(history)
    left = SPACE.sample(900, np.random.default_rng(1), exclude=history.visited)
    best = np.sort(surrogate.score(left))[::-1][:5]
    found = PerfectExplorer(n_candidates=5).propose(surrogate, history, np.random.default_rng(0))
    np.testing.assert_allclose(found.scores, best)
    assert found.log["queries"] == len(left) == 800
