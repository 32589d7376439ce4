"""The contract of explorers, with any surrogate, as a test class to subclass; needs pytest."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from anole.search.roles import Explorer, History, Surrogate
from anole.search.settings import Part
from anole.search.surrogate import SURROGATES
from anole.space import Space, option_knob
from anole.testing.formulas import bowl, handful

_MIN_CANDIDATES = 64
"""Minimum number of candidates in a large space: the default batch."""


class ExplorerContract:
    """Tests of an explorer, which a subclass provides as a fixture.

    ```
    class TestMyExplorer(ExplorerContract):
        @pytest.fixture
        def explorer(self):
            return MyExplorer()
    ```
    """

    @pytest.fixture
    def explorer(self) -> Part[Explorer]:
        """The settings of the explorer."""
        raise NotImplementedError

    @pytest.fixture(params=SURROGATES)
    def surrogate(self, request: pytest.FixtureRequest) -> Part[Surrogate]:
        """The settings of each built-in surrogate."""
        return SURROGATES[request.param]()

    def test_candidates_are_valid_distinct_and_new(self, explorer: Part[Explorer], surrogate: Part[Surrogate]) -> None:
        """Candidates are valid, distinct and new in every iteration."""
        history = _shared_history()
        search, model = explorer.start(history.space), _fit_surrogate(surrogate)
        for iteration in range(3):
            candidates = search.propose(model, history, np.random.default_rng(iteration))
            indices = history.space.indices(candidates.vectors)
            assert len(indices) >= _MIN_CANDIDATES
            assert candidates.vectors.dtype == np.int64
            assert history.space.valid(candidates.vectors).all()
            assert len(np.unique(indices)) == len(indices)
            assert not np.isin(indices, history.visited).any()

    def test_candidates_have_the_surrogates_scores_best_first(
        self, explorer: Part[Explorer], surrogate: Part[Surrogate]
    ) -> None:
        """Scores are zeros if the explorer does not use the surrogate."""
        history, model = _shared_history(), _fit_surrogate(surrogate)
        candidates = explorer.start(history.space).propose(model, history, np.random.default_rng(0))
        assert candidates.scores.shape == (len(candidates.vectors),)
        assert (np.diff(candidates.scores) <= 0).all()
        if candidates.scores.any():
            np.testing.assert_allclose(candidates.scores, model.score(candidates.vectors), rtol=1e-6)
        assert all(isinstance(value, (int, float)) for value in candidates.log.values())

    def test_the_same_seeds_give_the_same_candidates_in_every_iteration(
        self, explorer: Part[Explorer], surrogate: Part[Surrogate]
    ) -> None:
        """Resuming a run by replay depends on this."""
        history, model = _shared_history(), _fit_surrogate(surrogate)
        runs = []
        for _ in range(2):
            search = explorer.start(history.space)
            runs.append([search.propose(model, history, np.random.default_rng(seed)).vectors for seed in (3, 4)])
        np.testing.assert_array_equal(runs[0][0], runs[1][0])
        np.testing.assert_array_equal(runs[0][1], runs[1][1])
        assert not np.array_equal(runs[0][0], runs[0][1])

    def test_before_the_first_fit_candidates_are_uniform(
        self, explorer: Part[Explorer], surrogate: Part[Surrogate]
    ) -> None:
        """The candidates spread over the space; all scores are zero."""
        space = _shared_history().space
        search = explorer.start(space)
        candidates = search.propose(surrogate.start(space), History(space, 1), np.random.default_rng(0))
        assert len(candidates.vectors) >= _MIN_CANDIDATES and not candidates.scores.any()
        assert len(np.unique(candidates.vectors[:, 0])) > 30

    def test_a_small_space_is_exhausted_without_repeats(
        self, explorer: Part[Explorer], surrogate: Part[Surrogate]
    ) -> None:
        """Every config is proposed once; then there are no candidates."""
        formula = handful()
        assert formula.space.valid_indices is not None
        search, model = explorer.start(formula.space), surrogate.start(formula.space)
        history = History(formula.space, formula.flop)
        for iteration in range(20):
            candidates = search.propose(model, history, np.random.default_rng(iteration))
            batch = candidates.vectors[:2]
            history.add(batch, formula.measurements(batch))
            if len(history) == len(formula.space.valid_indices):
                break
            model.fit(history)
        np.testing.assert_array_equal(np.sort(history.visited), formula.space.valid_indices)
        model.fit(history)
        assert len(search.propose(model, history, np.random.default_rng(0)).vectors) == 0

    def test_a_space_of_one_config(self, explorer: Part[Explorer], surrogate: Part[Surrogate]) -> None:
        """The only config is proposed."""
        space = Space([option_knob("only", [7])])
        search = explorer.start(space)
        candidates = search.propose(surrogate.start(space), History(space, 1), np.random.default_rng(0))
        assert candidates.vectors.tolist() == [[0]]


@cache
def _shared_history() -> History:
    """Return the history that all tests share; no test changes it."""
    return bowl().history(80)


def _fit_surrogate(settings: Part[Surrogate]) -> Surrogate:
    """Return a surrogate that is fitted to the shared history."""
    surrogate = settings.start(_shared_history().space)
    surrogate.fit(_shared_history())
    return surrogate
