"""The contract of evaluators as a test class to subclass; needs pytest."""

from __future__ import annotations

import numpy as np
import pytest

from anole.search.roles import Evaluator


class EvaluatorContract:
    """Tests of an evaluator, which a subclass provides as a fixture.

    ```
    class TestMyEvaluator(EvaluatorContract):
        @pytest.fixture
        def evaluator(self):
            return MyEvaluator()
    ```
    """

    @pytest.fixture
    def evaluator(self) -> Evaluator:
        """The evaluator; it serves as its own settings."""
        raise NotImplementedError

    def test_a_steady_kernel_has_an_exact_latency_and_no_spread(self, evaluator: Evaluator) -> None:
        """Constant times give the exact latency."""
        timing = evaluator.evaluate(_Kernel(3e-3))
        assert timing.latency_s == pytest.approx(3e-3)
        assert timing.latency_std_s == pytest.approx(0, abs=1e-12) and timing.cv == pytest.approx(0, abs=1e-9)
        assert timing.repeats >= 1

    def test_a_noisy_kernel_stays_within_the_observed_times(self, evaluator: Evaluator) -> None:
        """The latency lies within the observed times, and the spread is the repeats' standard deviation."""
        kernel = _Kernel(1e-3, noise=0.05)
        timing = evaluator.evaluate(kernel)
        assert min(kernel.costs_s) <= timing.latency_s <= max(kernel.costs_s)
        assert timing.latency_std_s > 0 and timing.cv == pytest.approx(timing.latency_std_s / 1e-3, rel=0.2)

    def test_the_first_run_is_untimed_and_run_counts_are_positive_integers(self, evaluator: Evaluator) -> None:
        """The first run has cold caches and does not count."""
        kernel = _Kernel(1e-3)

        def timer(number: int) -> float:
            kernel(number)
            return 1.0 if len(kernel.calls) == 1 else 1e-3

        timing = evaluator.evaluate(timer)
        assert timing.latency_s == pytest.approx(1e-3)
        assert all(isinstance(number, int) and number > 0 for number in kernel.calls)
        assert len(kernel.calls) > timing.repeats

    def test_an_exception_of_the_kernel_propagates(self, evaluator: Evaluator) -> None:
        """The caller gets the exception."""

        def timer(number: int) -> float:
            raise RuntimeError("illegal instruction")

        with pytest.raises(RuntimeError, match="illegal instruction"):
            evaluator.evaluate(timer)


class _Kernel:
    """A kernel of known speed; `noise` is the relative deviation of one call of its timer."""

    def __init__(self, latency_s: float, noise: float = 0.0) -> None:
        self.latency_s, self.noise, self.rng = latency_s, noise, np.random.default_rng(0)
        self.calls: list[int] = []
        self.costs_s: list[float] = []

    def __call__(self, number: int) -> float:
        self.calls.append(number)
        self.costs_s.append(self.latency_s * (1 + self.noise * self.rng.standard_normal()))
        return self.costs_s[-1]
