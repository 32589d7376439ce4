"""The contract of samplers as a test class to subclass; needs pytest and hypothesis."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anole.search.roles import Candidates, History, Sampler
from anole.search.settings import Part
from anole.testing.formulas import bowl, handful

_bowl, _handful = cache(bowl), cache(handful)


class SamplerContract:
    """Tests of a sampler, which a subclass provides as a fixture.

    ```
    class TestMySampler(SamplerContract):
        @pytest.fixture
        def sampler(self):
            return MySampler()
    ```
    """

    @pytest.fixture
    def sampler(self) -> Part[Sampler]:
        """The settings of the sampler."""
        raise NotImplementedError

    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )
    @given(n_measured=st.integers(0, 8), n_candidates=st.integers(0, 8), n=st.integers(1, 12), seed=st.integers(0, 99))
    def test_the_choice_is_valid_distinct_new_and_not_too_large(
        self, sampler: Part[Sampler], n_measured: int, n_candidates: int, n: int, seed: int
    ) -> None:
        """The choice is valid for any number of candidates, including none."""
        formula = _handful()
        history = formula.history(n_measured)
        candidates = _candidates(history, n_candidates, seed)
        choice = sampler.start(formula.space).choose(candidates, history, n, np.random.default_rng(seed))
        indices = formula.space.indices(choice)
        assert min(1, len(candidates.vectors)) <= len(choice) <= n
        assert choice.shape[1] == len(formula.space.knobs) and choice.dtype == np.int64
        assert formula.space.valid(choice).all()
        assert len(np.unique(indices)) == len(indices)
        assert not np.isin(indices, history.visited).any()

    def test_the_choice_is_repeatable(self, sampler: Part[Sampler]) -> None:
        """Resuming a run by replay depends on this."""
        history = _bowl().history(50)
        candidates = _candidates(history, 200, 0)
        choice, repeated_choice = (
            sampler.start(history.space).choose(candidates, history, 64, np.random.default_rng(5)) for _ in range(2)
        )
        np.testing.assert_array_equal(choice, repeated_choice)

    def test_fast_candidates_give_a_choice_faster_than_random(self, sampler: Part[Sampler]) -> None:
        """On average, the chosen configs are faster than random ones, whether or not they are candidates."""
        formula = _bowl()
        history, pool = formula.history(50), formula.history(4000, seed=1)
        unseen = ~np.isin(pool.visited, history.visited)
        ranking = np.argsort(-pool.scores[unseen])[:128]
        candidates = Candidates(pool.vectors[unseen][ranking], pool.scores[unseen][ranking])
        choice = sampler.start(formula.space).choose(candidates, history, 64, np.random.default_rng(0))
        chosen_history = History(formula.space, formula.flop)
        chosen_history.add(choice, formula.measurements(choice))
        assert chosen_history.gflops.mean() > pool.gflops.mean()

    def test_no_candidates_give_no_choice(self, sampler: Part[Sampler]) -> None:
        """Nothing is chosen once the entire space is measured."""
        formula = _handful()
        history = formula.history(8)
        assert formula.space.valid_indices is not None and len(history) == len(formula.space.valid_indices)
        empty = Candidates(formula.space.vectors([]), np.zeros(0))
        choice = sampler.start(formula.space).choose(empty, history, 4, np.random.default_rng(0))
        assert choice.shape == (0, len(formula.space.knobs))

    def test_the_history_is_not_changed(self, sampler: Part[Sampler]) -> None:
        """Only the loop changes the history."""
        history, unchanged = _bowl().history(20), _bowl().history(20)
        sampler.start(history.space).choose(_candidates(history, 40, 1), history, 16, np.random.default_rng(0))
        np.testing.assert_array_equal(history.vectors, unchanged.vectors)
        np.testing.assert_array_equal(history.gflops, unchanged.gflops)


def _candidates(history: History, n: int, seed: int) -> Candidates:
    """Return n random candidates with random scores, the best first."""
    vectors = history.space.sample(n, np.random.default_rng(seed), exclude=history.visited)
    return Candidates(vectors, np.sort(np.random.default_rng(seed).random(len(vectors)))[::-1])
