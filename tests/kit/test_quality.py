"""Metrics for comparing searches."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.quality import incumbents, log_gap


@given(st.lists(st.one_of(st.just(math.nan), st.floats(1e-6, 1.0)), min_size=1))
def test_incumbents_match_a_plain_loop(latencies_s: list[float]) -> None:
    best, expected = -1, []
    for number, latency_s in enumerate(latencies_s):
        if not math.isnan(latency_s) and (best < 0 or latency_s < latencies_s[best]):
            best = number
        expected.append(best)
    assert incumbents(latencies_s).tolist() == expected


def test_the_gap_is_the_mean_over_the_fastest() -> None:
    assert log_gap([4.0, math.nan, 1.0, 2.0], 1.0) == 0.0
    assert log_gap([4.0, math.nan, 1.0, 2.0], 1.0, 2) == pytest.approx(math.log(2) / 2)
    assert log_gap([4.0, math.nan, 1.0, 2.0], 1.0, 4) == math.inf
    assert log_gap([4.0], 1.0, 2) == math.inf
