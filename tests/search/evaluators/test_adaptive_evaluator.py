"""The adaptive evaluator, on kernels with known latencies."""

import itertools
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.evaluators.adaptive_evaluator import AdaptiveEvaluator, stability

from ...examples import examples

FAST = AdaptiveEvaluator(micro_batch_s=0.002, max_s=0.1, slow_factor=3.0)


class Kernel:
    """A kernel whose run i, counted from 0 after the untimed one, takes `latency_s(i)`."""

    def __init__(self, latency_s):
        self.latency_s, self.n_runs, self.numbers, self.spent_s = latency_s, -1, [], 0.0

    def __call__(self, number):
        runs_s = [self.latency_s(max(0, self.n_runs + i)) for i in range(number)]
        if self.n_runs >= 0:
            self.numbers.append(number)
            self.spent_s += sum(runs_s)
        self.n_runs += number
        return sum(runs_s) / number


def steady(latency_s):
    return Kernel(lambda run: latency_s)


@pytest.mark.parametrize(
    ("evaluator", "latency_s", "numbers"),
    [
        (AdaptiveEvaluator(), 1e-3, [50] * 3),
        (AdaptiveEvaluator(), 0.03, [50] * 3),
        (AdaptiveEvaluator(), 0.08, [50, 12]),  # cut short by the time limit
        (FAST, 0.999e-5, [200] * 3),
        (FAST, 0.999e-3, [2] * 3),
        (FAST, 6.99e-3, [1] * 3),
        (FAST, 0.04, [1, 1]),  # the time limit is exceeded by at most one run
        (FAST, 0.06, [1]),
        (FAST, 3.0, [1]),
    ],
)
def test_a_steady_kernel_stops_early(evaluator, latency_s, numbers):
    kernel = steady(latency_s)
    timing = evaluator.evaluate(kernel)
    assert (kernel.numbers, timing.repeats) == (numbers, len(numbers))
    assert timing.latency_s == pytest.approx(latency_s)


def test_a_drifting_kernel_is_run_to_the_end():
    kernel = Kernel(lambda run: 1e-5 * 1.01**run)
    timing = AdaptiveEvaluator().evaluate(kernel)
    assert kernel.numbers == [50] * 10
    assert timing.repeats == 10 and timing.cv > 0.1
    assert timing.latency_s == pytest.approx(kernel.spent_s / 500)


def test_a_kernel_with_slow_first_runs_is_run_until_it_is_steady():
    """The first five runs are slow, and the mean speed since the start takes a while to recover."""
    kernel = Kernel(lambda run: 1e-3 if run >= 5 else 7e-3)
    numbers = {}
    for threshold in (0.3, 0.1, 0.05):
        kernel.n_runs, kernel.numbers = -1, []
        AdaptiveEvaluator(micro_batch=10, max_micro_batches=1000, threshold=threshold, max_s=60.0).evaluate(kernel)
        numbers[threshold] = len(kernel.numbers)
        costs_s = [4e-3 if i == 0 else 1e-3 for i in range(len(kernel.numbers))]
        assert stability(kernel.numbers, costs_s) < threshold
        assert len(costs_s) == 3 or stability(kernel.numbers[:-1], costs_s[:-1]) >= threshold
    assert 3 <= numbers[0.3] < numbers[0.1] < numbers[0.05] < 1000


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 100), st.floats(1e-6, 1.0)), min_size=1, max_size=12))
def test_stability_is_the_papers_formula(micro_batches):
    flop, n_runs, time_s, speeds = 7e9, 0, 0.0, []
    for number, cost_s in micro_batches:
        n_runs += number
        time_s += number * cost_s
        speeds.append(n_runs * flop / time_s)
    numbers, costs_s = zip(*micro_batches, strict=True)
    assert stability(numbers, costs_s) == pytest.approx(
        statistics.pstdev(speeds) / statistics.fmean(speeds), rel=1e-6, abs=1e-9
    )


@settings(max_examples=examples(100), deadline=None)
@given(
    latencies_s=st.lists(st.floats(1e-5, 0.2), min_size=1, max_size=20),
    micro_batch_s=st.none() | st.floats(0, 0.1),
    n_micro_batches=st.integers(1, 12),
    max_s=st.floats(0, 0.5),
)
def test_the_limits_hold_for_any_latencies(latencies_s, micro_batch_s, n_micro_batches, max_s):
    cycle = itertools.cycle(latencies_s)
    kernel = Kernel(lambda run: next(cycle))
    timing = AdaptiveEvaluator(micro_batch_s=micro_batch_s, max_micro_batches=n_micro_batches, max_s=max_s).evaluate(
        kernel
    )
    assert 1 <= timing.repeats == len(kernel.numbers) <= n_micro_batches
    assert timing.latency_s == pytest.approx(kernel.spent_s / sum(kernel.numbers))
    assert min(latencies_s) * 0.999 <= timing.latency_s <= max(latencies_s) * 1.001


def test_a_cold_first_run_does_not_shrink_later_micro_batches():
    kernel, calls = steady(0.99e-4), itertools.count()
    kernel.n_runs = 0
    FAST.evaluate(lambda number: 1e-2 if next(calls) == 0 else kernel(number))
    assert kernel.numbers == [1, 20, 20]


@pytest.mark.parametrize(
    ("best_s", "slow_factor", "repeats"), [(1e-4, 3.0, 1), (5e-4, 3.0, 3), (None, 3.0, 3), (1e-4, None, 3)]
)
def test_a_slow_kernel_is_abandoned_after_its_first_micro_batch(best_s, slow_factor, repeats):
    timing = AdaptiveEvaluator(slow_factor=slow_factor).evaluate(steady(1e-3), best_s)
    assert timing.repeats == repeats and timing.latency_s == pytest.approx(1e-3)


def test_the_spread_is_over_the_micro_batches():
    costs_s = iter([9.0, 1e-3, 1.1e-3, 1.2e-3])
    timing = AdaptiveEvaluator(max_micro_batches=3).evaluate(lambda number: next(costs_s))
    assert timing.latency_std_s == pytest.approx(statistics.pstdev([1e-3, 1.1e-3, 1.2e-3]))
    assert timing.cv == pytest.approx(timing.latency_std_s / 1.1e-3)
