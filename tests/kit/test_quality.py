"""The arithmetic by which searches are compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.quality import Curve, incumbents, log_gap, quartiles

NAN, INF = math.nan, math.inf
CURVE = Curve(np.array([1.0, 2.0, 4.0, 8.0]), np.array([NAN, 0.5, 0.9, 0.8]))


@pytest.mark.parametrize(("quality", "reached"), [(0.5, (2, 2.0)), (0.51, (3, 4.0)), (0.9, (3, 4.0)), (0.91, None)])
def test_a_quality_is_reached_the_first_time(quality: float, reached: tuple[int, float] | None) -> None:
    assert CURVE.reached(quality) == reached


@pytest.mark.parametrize(("n_trials", "quality"), [(0, NAN), (1, NAN), (2, 0.5), (3, 0.9), (4, 0.8), (99, 0.8)])
def test_the_quality_after_trials(n_trials: int, quality: float) -> None:
    assert CURVE.at_trials(n_trials) == pytest.approx(quality, nan_ok=True)


@pytest.mark.parametrize(
    ("elapsed_s", "quality"), [(0.5, NAN), (2.0, 0.5), (3.9, 0.5), (4.0, 0.9), (99.0, 0.8), (NAN, NAN)]
)
def test_the_quality_after_seconds(elapsed_s: float, quality: float) -> None:
    assert CURVE.at_seconds(elapsed_s) == pytest.approx(quality, nan_ok=True)


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
def test_incumbents_are_those_of_a_plain_loop(latencies_s: list[float]) -> None:
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


def test_never_sorts_last() -> None:
    assert quartiles([INF, 3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    assert quartiles([INF, INF, INF, 1.0]) == (1.0, INF, INF)
    assert quartiles([2.0]) == (2.0, 2.0, 2.0)
