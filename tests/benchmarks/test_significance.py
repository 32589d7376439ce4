"""Student's intervals over places hold the truth as often as they say, and corrected p-values are Holm's."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.search.significance import effect, holm


def logs_of(rng, truth, n_places=8, n_seeds=3):
    """Logarithms that differ between places, and less between seeds."""
    places = rng.normal(truth, 0.1, size=n_places)
    return {
        (str(at), str(seed)): value + rng.normal(0, 0.02) for at, value in enumerate(places) for seed in range(n_seeds)
    }


def test_an_interval_holds_the_truth_and_p_is_small_by_chance_as_often_as_they_say():
    rng = np.random.default_rng(0)
    found = [effect(logs_of(rng, 0.2), claimed=np.exp(0.2)) for _ in range(400)]
    held = np.mean([each.low <= np.exp(0.2) <= each.high for each in found])
    assert 0.92 < held < 0.98
    assert np.mean([each.p < 0.05 for each in found]) == pytest.approx(1 - held)


def test_seeds_of_a_place_are_no_evidence_of_their_own():
    one = {(str(at), "0"): value for at, value in enumerate([0.1, 0.2, 0.0, 0.3, 0.1])}
    many = {(place, str(seed)): value for (place, _), value in one.items() for seed in range(50)}
    first, second = effect(one), effect(many)
    assert (first.low, first.high, first.p) == pytest.approx((second.low, second.high, second.p))
    assert (first.n, second.n, second.places) == (5, 250, 5)


@pytest.mark.parametrize(
    ("n_places", "n_seeds", "settled"), [(1, 9, False), (2, 9, False), (4, 1, False), (5, 1, True)]
)
def test_few_places_or_pairs_settle_nothing(n_places, n_seeds, settled):
    found = effect(logs_of(np.random.default_rng(1), 3.0, n_places, n_seeds))
    assert (found.low is not None) == settled == (found.p < 0.05)


def test_what_cannot_vary_is_no_evidence():
    found = effect({(str(at), "0"): np.log(4.0) for at in range(9)})
    assert (found.value, found.low, found.p) == (pytest.approx(4.0), None, 1.0)
    assert effect({}) is None


def test_p_values_are_corrected_for_their_number():
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.6, 0.6]) == [1.0, 1.0] and holm([]) == []
