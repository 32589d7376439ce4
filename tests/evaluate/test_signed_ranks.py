"""An interval from signed ranks holds the middle as often as it says, whatever the distribution."""

from __future__ import annotations

from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.evaluate.signed_ranks import _cut, middle

NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40).map(np.array)


@pytest.mark.parametrize("count", [1, 4, 9])
def test_the_sums_of_ranks_are_those_of_all_signs(count: int) -> None:
    sums = sorted(sum(rank for rank, sign in enumerate(signs, 1) if sign) for signs in product((0, 1), repeat=count))
    for tail in (0.001, 0.01, 0.05, 0.2):
        cut = _cut(count, tail)
        # One more would be cut off too often, and so many are not.
        assert np.mean(np.array(sums) < cut) <= tail < np.mean(np.array(sums) <= cut)


def test_many_numbers_are_cut_as_the_exact_distribution_does() -> None:
    assert _cut(200, 0.004) == pytest.approx(_cut(201, 0.004), rel=0.02)


@given(NUMBERS, st.floats(-100, 100))
def test_what_is_moved_or_mirrored_has_an_interval_that_is(values: np.ndarray, by: float) -> None:
    found, moved, mirrored = (middle(each, 0.05) for each in (values, values + by, -values))
    assert found.low <= found.value <= found.high
    for mine, other, opposite in (
        (found.value, moved.value, mirrored.value),
        (found.low, moved.low, mirrored.high),
        (found.high, moved.high, mirrored.low),
    ):
        assert other == pytest.approx(mine + by, abs=1e-6) and opposite == pytest.approx(-mine, abs=1e-6)


@given(NUMBERS)
def test_more_certainty_needs_a_wider_interval(values: np.ndarray) -> None:
    narrow, wide = middle(values, 0.2), middle(values, 0.01)
    assert wide.low <= narrow.low and narrow.high <= wide.high


def test_too_few_numbers_have_no_interval() -> None:
    assert (middle(np.ones(7), 0.01).low, middle(np.ones(7), 0.01).high) == (-inf, inf)
    assert middle(np.ones(8), 0.01).low == 1.0


@pytest.mark.parametrize("scale", ["normal", "cauchy"])
def test_it_is_wrong_no_more_often_than_it_says(scale: str) -> None:
    rng = np.random.default_rng(1)
    draw = {"normal": rng.standard_normal, "cauchy": rng.standard_cauchy}[scale]
    found = [middle(draw(15), 0.1) for _ in range(1000)]
    assert 0.05 < np.mean([each.low > 0 or each.high < 0 for each in found]) < 0.12
