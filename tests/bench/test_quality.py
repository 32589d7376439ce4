"""Metrics for comparing searches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.bench.quality import incumbents, log_gap, trials_until

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(("quality", "trials"), [(0.5, 2), (0.51, 3), (0.9, 3), (0.91, None)])
def test_a_quality_is_reached_the_first_time(quality: float, trials: int | None) -> None:
    assert trials_until(np.array([NAN, 0.5, 0.9, 0.8]), quality) == trials


@pytest.mark.parametrize(
    ("latencies_s", "expected"),
    [
        ([3.0, 4.0, 2.0, 2.0, 1.0], [0, 0, 2, 2, 4]),
        ([NAN, 5.0, NAN, 4.0], [-1, 1, 1, 3]),
        ([NAN, NAN], [-1, -1]),
    ],
)
def test_the_incumbent_is_the_first_of_the_fastest(latencies_s: list[float], expected: list[int]) -> None:
    assert incumbents(latencies_s).tolist() == expected


@given(st.lists(st.one_of(st.just(NAN), st.floats(1e-6, 1.0)), min_size=1))
def test_incumbents_match_a_plain_loop(latencies_s: list[float]) -> None:
    best, expected = -1, []
    for number, latency_s in enumerate(latencies_s):
        if not math.isnan(latency_s) and (best < 0 or latency_s < latencies_s[best]):
            best = number
        expected.append(best)
    assert incumbents(latencies_s).tolist() == expected


def test_the_gap_is_the_mean_over_the_fastest() -> None:
    assert log_gap([4.0, NAN, 1.0, 2.0], 1.0) == 0.0
    assert log_gap([4.0, NAN, 1.0, 2.0], 1.0, 2) == pytest.approx(math.log(2) / 2)
    assert log_gap([4.0, NAN, 1.0, 2.0], 1.0, 4) == INF
    assert log_gap([4.0], 1.0, 2) == INF
