"""The compared variants are valid, controls differ only in their samplers, and the Gaussian process works."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from anole.record import Measurement, Status
from anole.search.roles import History
from anole.space import Space, option_knob
from benchmarks.search.gaussian_process import GaussianProcess
from benchmarks.search.variants import VARIANTS, sized_as, tuner_of
from kit.controls import PerfectExplorer

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


def history_of(vectors):
    history = History(SPACE, 10**9)
    latencies = (1.0 + (vector[0] - 20) ** 2 / 50 + (vector[1] - 5) ** 2 / 50 for vector in vectors.tolist())
    history.add(vectors, [Measurement(Status.OK, latency_s=latency_s) for latency_s in latencies])
    return history


def test_the_gaussian_process_scores_near_the_best_high_and_is_uncertain_far_away():
    corner = np.array([[a, b] for a in range(10, 30, 2) for b in range(0, 15, 2)])
    surrogate = GaussianProcess().start(SPACE)
    surrogate.fit(history_of(corner))
    optimum, edge = np.array([[20, 5]]), np.array([[12, 13]])
    assert surrogate.fitted and surrogate.score(optimum)[0] > surrogate.score(edge)[0]
    assert surrogate.spread(np.array([[0, 29]]))[0] > 3 * surrogate.spread(corner[:5]).max()


def test_without_a_success_the_gaussian_process_is_not_fitted():
    surrogate, history = GaussianProcess().start(SPACE), History(SPACE, 1)
    surrogate.fit(history)
    history.add(SPACE.vectors([1, 2]), [Measurement(Status.RUN_ERROR, "no")] * 2)
    surrogate.fit(history)
    assert not surrogate.fitted and not surrogate.score(SPACE.vectors([1, 2, 3])).any()


def test_a_perfect_explorer_proposes_the_highest_scores_of_the_space() -> None:
    history = history_of(np.array([[a, b] for a in range(0, 30, 3) for b in range(0, 30, 3)]))
    surrogate = GaussianProcess().start(SPACE)
    surrogate.fit(history)
    left = SPACE.sample(900, np.random.default_rng(1), exclude=history.visited)
    best = np.sort(surrogate.score(left))[::-1][:5]
    found = PerfectExplorer(n_candidates=5).propose(surrogate, history, np.random.default_rng(0))
    np.testing.assert_allclose(found.scores, best)
    assert found.log["queries"] == len(left) == 800
