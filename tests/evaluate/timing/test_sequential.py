"""Sequential comparisons: they detect small slowdowns, raise few false alarms, and end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.evaluate.timing.pairs import latency_s
from anole.evaluate.timing.sequential import Ratio, Verdict, _cut, compare_rounds, middle

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40).map(np.array)

compare_long = partial(compare_rounds, seconds=1e9, max_rounds=150)


def rounds_of(slowdown: float, rng: np.random.Generator) -> Callable[[], float]:
    """Return a source of rounds under load: most differ by 1 %, one in five by much more."""
    return lambda: float(log(1 + slowdown) + rng.normal(0, 0.2 if rng.random() < 0.2 else 0.01))


def runs_of(base_s: float, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Return an engine's runs in a round under load: a third waits for a processor, the others differ by 3 %."""
    runs = []
    for _ in range(60):
        waited_s = rng.exponential(3 * base_s) if rng.random() < 0.33 else 0.0
        runs.append((base_s * (1 + rng.exponential(0.03)) + waited_s, waited_s))
    return runs


def test_a_slowdown_of_two_percent_is_detected_under_load() -> None:
    rng = np.random.default_rng(0)
    found = [compare_long(rounds_of(0.02, rng), 0.01).verdict for _ in range(300)]
    assert found.count(Verdict.SLOWER) >= 285 and Verdict.FASTER not in found and Verdict.EQUAL not in found


def test_it_is_detected_from_single_runs() -> None:
    rng = np.random.default_rng(0)

    def take(slowdown: float) -> float:
        return log(latency_s(runs_of(1 + slowdown, rng)) / latency_s(runs_of(1.0, rng)))

    slower = [compare_long(lambda: take(0.02), 0.01) for _ in range(40)]
    same = [compare_long(lambda: take(0.0), 0.01) for _ in range(40)]
    assert [ratio.verdict for ratio in slower].count(Verdict.SLOWER) >= 39
    assert [ratio.verdict for ratio in same].count(Verdict.EQUAL) >= 39
    assert np.mean([ratio.value for ratio in slower]) == pytest.approx(1.02, abs=0.002)


@pytest.mark.guard
@pytest.mark.parametrize("threshold", [1e-9, 0.01])
def test_interim_analyses_do_not_inflate_the_error_rate(threshold: float) -> None:
    rng = np.random.default_rng(1)
    # The true difference is at the threshold, where false alarms are most frequent.
    found = [compare_long(rounds_of(threshold, rng), threshold).verdict for _ in range(1000)]
    assert found.count(Verdict.SLOWER) + found.count(Verdict.FASTER) <= 10


def test_a_speedup_is_detected() -> None:
    ratio = compare_long(rounds_of(-0.05, np.random.default_rng(0)), 0.01)
    assert ratio.verdict is Verdict.FASTER and ratio.low < 0.95 < ratio.high < 0.99


def test_a_clear_difference_takes_ten_rounds_and_an_unclear_one_takes_all() -> None:
    clear = compare_long(iter(np.linspace(0.49, 0.51, 1000)).__next__, 0.01)
    assert (clear.rounds, clear.verdict) == (10, Verdict.SLOWER)
    rng = np.random.default_rng(0)
    unclear = compare_long(lambda: float(rng.normal(log(1.01), 0.05)), 0.01)
    assert (unclear.rounds, unclear.verdict) == (150, Verdict.OPEN)


def test_the_time_limit_ends_a_comparison_without_a_verdict() -> None:
    ratio = compare_rounds(lambda: 0.5, 0.01, seconds=0.0, max_rounds=100)
    assert (ratio.rounds, ratio.low, ratio.high, ratio.verdict) == (1, 0.0, inf, Verdict.OPEN)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.011, 1.2, Verdict.SLOWER),
        (1.009, 1.2, Verdict.OPEN),
        (0.995, 1.005, Verdict.EQUAL),
        (0.98, 1.005, Verdict.OPEN),
        (0.9, 0.98, Verdict.FASTER),
    ],
)
def test_the_verdict_depends_on_the_entire_interval(low: float, high: float, verdict: Verdict) -> None:
    assert Ratio((low + high) / 2, low, high, 10, 0.01).verdict is verdict


@pytest.mark.parametrize("count", [1, 4, 9])
def test_the_cut_matches_the_exact_distribution_of_rank_sums(count: int) -> None:
    sums = sorted(sum(rank for rank, sign in enumerate(signs, 1) if sign) for signs in product((0, 1), repeat=count))
    for tail in (0.001, 0.01, 0.05, 0.2):
        cut = _cut(count, tail)
        # Cutting off one more would exceed the probability `tail`.
        assert np.mean(np.array(sums) < cut) <= tail < np.mean(np.array(sums) <= cut)


def test_the_normal_approximation_matches_the_exact_distribution() -> None:
    assert _cut(200, 0.004) == pytest.approx(_cut(201, 0.004), rel=0.02)


@given(VALUES, st.floats(-100, 100))
def test_intervals_are_equivariant_to_shifts_and_reflections(values: np.ndarray, by: float) -> None:
    value, low, high = middle(values, 0.05)
    assert low <= value <= high
    assert middle(values + by, 0.05) == pytest.approx((value + by, low + by, high + by), abs=1e-6)
    assert middle(-values, 0.05) == pytest.approx((-value, -high, -low), abs=1e-6)


@given(VALUES)
def test_more_certainty_needs_a_wider_interval(values: np.ndarray) -> None:
    (_, narrow_low, narrow_high), (_, wide_low, wide_high) = middle(values, 0.2), middle(values, 0.01)
    assert wide_low <= narrow_low and narrow_high <= wide_high


def test_too_few_values_have_an_infinite_interval() -> None:
    assert middle(np.ones(7), 0.01) == (1.0, -inf, inf)
    assert middle(np.ones(8), 0.01) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("scale", ["normal", "cauchy"])
def test_intervals_have_their_nominal_coverage(scale: str) -> None:
    rng = np.random.default_rng(1)
    draw = {"normal": rng.standard_normal, "cauchy": rng.standard_cauchy}[scale]
    found = [middle(draw(15), 0.1) for _ in range(1000)]
    assert 0.05 < np.mean([low > 0 or high < 0 for _, low, high in found]) < 0.12
