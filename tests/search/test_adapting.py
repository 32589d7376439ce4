"""Adaptive methods in entire searches: batch sizes adapt to the landscape, timings to the noise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from anole.record import Config, Measurement, Status
from anole.search.evaluators.adaptive_evaluator import AdaptiveEvaluator
from anole.search.presets import read_tuner
from anole.space import Space, option_knob
from anole.testing.formulas import Formula, bowl, islands
from kit.oracle import Oracle
from kit.quality import batch_sizes, format_shares

from .conftest import run_search


def sizes(formula: Formula, best_s: float, n_candidates: int = 64) -> list[int]:
    """Return the batch sizes of a search with an oracle, except the last one, which the budget cuts off."""
    annealing = {"name": "annealing", "n_candidates": n_candidates, "n_steps": 100}
    of_all_knobs = {"preset": "chameleon", "explorer": annealing, "sampler": {"clustered": "all"}}
    settings = replace(read_tuner(of_all_knobs), surrogate=Oracle(formula, best_s))
    return batch_sizes(run_search(formula, settings, 128))[:-1]


@pytest.mark.guard
def test_the_batch_size_follows_the_number_of_islands() -> None:
    """On a single hill the knee is in the first step; with clusters, at their number."""
    found = {n: float(np.mean(sizes(islands(n), 1e-3))) for n in (16, 25)}
    hill = float(np.mean(sizes(bowl(), 1e-3)))
    assert hill < 20 < found[16] < 28 < found[25]


def test_too_many_candidates_merge_the_islands() -> None:
    """With all visited configs instead of the best 64, the islands merge, and the knee is in the first step."""
    many, planned = sizes(islands(25), 1e-3, n_candidates=1000), sizes(islands(25), 1e-3)
    assert np.median(many) == 16 and min(planned) > 24


NOISE = {"quiet": 0.02, "loud": 0.5}
"""The relative deviation of a micro-batch's mean seconds; the papers' threshold is 0.1."""


@pytest.mark.parametrize("preset", ["adatune", "anole"])
def test_noisy_kernels_are_run_more_often(preset: str) -> None:
    evaluator = read_tuner({"preset": preset}).evaluator
    rng = np.random.default_rng(0)
    formula = Formula(Space([option_knob("noise", list(NOISE)), option_knob("a", list(range(40)))]), lambda _: 1e-3)

    def measure(configs: Sequence[Config]) -> Iterator[Measurement]:
        for config in configs:
            std = NOISE[str(config["noise"])]
            timing = evaluator.evaluate(lambda number, std=std: 1e-3 * float(np.exp(std * rng.standard_normal())))
            yield Measurement(Status.OK, latency_s=timing.latency_s, cv=timing.cv, repeats=timing.repeats)

    repeats = defaultdict[object, list[int]](list)
    for trial in run_search(formula, read_tuner({"preset": preset, "surrogate": "none"}), 60, measure=measure):
        repeats[trial.config["noise"]].append(trial.measurement.repeats)
    assert format_shares(repeats["quiet"]) == "3: 100 %"
    assert np.mean(repeats["loud"]) > 4.5 and {3, 10} < set(repeats["loud"])


def test_noise_below_the_threshold_is_averaged_out() -> None:
    """Cumulative means vary less than micro-batches, whose deviation must be twice the threshold to matter."""
    rng = np.random.default_rng(0)

    def more_than_three(std: float) -> float:
        timings = [
            AdaptiveEvaluator().evaluate(lambda number: 1e-3 * float(np.exp(std * rng.standard_normal())))
            for _ in range(400)
        ]
        return float(np.mean([timing.repeats > 3 for timing in timings]))

    assert more_than_three(0.05) == 0 and more_than_three(0.1) < 0.03
    assert 0.1 < more_than_three(0.2) < 0.3 and more_than_three(0.5) > 0.5
