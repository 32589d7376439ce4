"""The fixed evaluator, on known costs."""

import statistics

import pytest

from anole.search.evaluators.fixed import Fixed


def timer_of(costs_s):
    costs_s, numbers = iter(costs_s), []

    def timer(number):
        numbers.append(number)
        return next(costs_s)

    return timer, numbers


def test_warms_up_once_and_drops_the_extremes():
    timer, numbers = timer_of([9.0, 4.0, 1.0, 2.0, 3.0, 8.0])
    timing = Fixed(number=10, repeats=5).evaluate(timer)
    assert numbers == [1, 10, 10, 10, 10, 10]
    assert timing.latency_s == pytest.approx(3.0)
    assert timing.latency_std_s == pytest.approx(statistics.pstdev([4, 1, 2, 3, 8]))
    assert timing.cv == pytest.approx(timing.latency_std_s / 3.6)
    assert timing.repeats == 5


@pytest.mark.parametrize(("costs_s", "latency_s"), [([2.0], 2.0), ([2.0, 4.0], 3.0), ([2.0, 4.0, 9.0], 4.0)])
def test_up_to_two_repeats_are_all_kept(costs_s, latency_s):
    timer, _ = timer_of([0.0, *costs_s])
    assert Fixed(repeats=len(costs_s)).evaluate(timer).latency_s == pytest.approx(latency_s)


@pytest.mark.parametrize(("first_s", "number"), [(1e-3, 500), (0.1, 50), (9.0, 1)])
def test_the_time_limit_reduces_the_runs(first_s, number):
    """AdaTune's deep evaluation, 500 executions, would take minutes for slow kernels."""
    timer, numbers = timer_of([first_s, first_s])
    Fixed(number=500, repeats=1, max_s=5.0).evaluate(timer)
    assert numbers == [1, number]
