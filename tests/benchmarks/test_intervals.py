"""Intervals of paired comparisons hold what they should, as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.search.intervals import mean, ratio


def lines(values):
    return [
        {"variant": variant, "layer": layer, "seed": str(seed), "trials": str(value)}
        for (variant, layer, seed), value in values.items()
    ]


def test_a_ratio_is_paired_by_layer_and_seed():
    values = {("a", layer, seed): 2 * (seed + 1) * scale for layer, scale in (("x", 1), ("y", 50)) for seed in range(3)}
    values |= {("b", layer, seed): value / 2 for (_, layer, seed), value in values.items()}
    values["a", "z", 0] = 7.0
    found = ratio(lines(values), "a", "b", "trials")
    assert found is not None and found.n == 6
    assert found.low == pytest.approx(2.0) == found.high == found.value


def test_what_is_missing_or_never_reached_makes_no_pair():
    values = {("a", "x", 0): "", ("b", "x", 0): 5, ("a", "x", 1): 10, ("b", "x", 1): 5}
    found = ratio(lines(values), "a", "b", "trials")
    assert found is not None and found.n == 1 and found.value == pytest.approx(2.0)
    assert ratio(lines(values), "a", "c", "trials") is None


def test_an_interval_holds_the_truth_about_as_often_as_it_says():
    """Layers differ by a normal effect, and seeds by another one; the truth is the mean over all layers there are."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(60):
        effects = rng.normal(0.2, 0.1, size=12)
        values = {
            (str(at), str(seed)): effect + rng.normal(0, 0.2) for at, effect in enumerate(effects) for seed in range(6)
        }
        found = mean(values)
        held += found.low <= 0.2 <= found.high
    assert 50 <= held <= 60
