"""The contract of surrogates as a test class to subclass; needs pytest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from anole.record import Measurement, Status
from anole.search.roles import History, Surrogate
from anole.search.settings import Part
from anole.space import Space, option_knob
from anole.space.space import Columns
from anole.testing.formulas import bowl, handful


class SurrogateContract:
    """Tests of a surrogate, which a subclass provides as a fixture.

    ```
    class TestMySurrogate(SurrogateContract):
        @pytest.fixture
        def surrogate(self):
            return MySurrogate()
    ```
    """

    @pytest.fixture
    def surrogate(self) -> Part[Surrogate]:
        """The settings of the surrogate."""
        raise NotImplementedError

    def test_scores_are_zero_before_the_first_fit(self, surrogate: Part[Surrogate]) -> None:
        """All scores are zero, and fitting to an empty history changes nothing."""
        space = handful().space
        model = surrogate.start(space)
        assert not model.fitted
        np.testing.assert_array_equal(model.score(space.vectors([0, 1])), [0, 0])
        model.fit(History(space, 1))
        assert not model.fitted

    def test_is_not_fitted_to_failures_alone(self, surrogate: Part[Surrogate]) -> None:
        """Failures carry no information about speed."""
        history = History(_shared_history().space, 1)
        vectors = history.space.sample(10, np.random.default_rng(0))
        history.add(vectors, [Measurement(Status.BUILD_ERROR)] * 10)
        model = surrogate.start(history.space)
        model.fit(history)
        assert not model.fitted
        assert model.score(vectors).shape == (10,)

    def test_a_fitted_surrogate_ranks_unseen_configs(self, surrogate: Part[Surrogate]) -> None:
        """The configs with the highest scores are fast; the best known config scores about 1."""
        history, unseen = _shared_history(), _unseen_history()
        model = surrogate.start(history.space)
        model.fit(history)
        scores = model.score(unseen.vectors)
        assert scores.shape == (400,) and scores.dtype == np.float64 and np.isfinite(scores).all()
        if model.fitted:
            top_rows = np.argsort(scores)[-40:]
            # A surrogate with a spread may prefer uncertain configs; random scores would give 0.5.
            min_rank = 0.65 if model.spread(unseen.vectors).any() else 0.85
            assert _ranks(unseen.scores)[top_rows].mean() > min_rank * 400
            assert 0.3 < scores.max() < 1.5

    def test_scores_depend_on_neither_the_instance_nor_the_batch(self, surrogate: Part[Surrogate]) -> None:
        """Resuming a run by replay depends on this."""
        history = bowl().history(100)
        surrogate_a, surrogate_b = surrogate.start(history.space), surrogate.start(history.space)
        surrogate_a.fit(history)
        surrogate_b.fit(history)
        scores = surrogate_a.score(history.vectors)
        np.testing.assert_array_equal(scores, surrogate_b.score(history.vectors))
        one_by_one = [surrogate_a.score(history.vectors[row : row + 1])[0] for row in range(5)]
        np.testing.assert_array_equal(scores[:5], one_by_one)
        assert surrogate_a.score(history.vectors[:0]).shape == (0,)

    def test_a_single_trial_gives_finite_scores(self, surrogate: Part[Surrogate]) -> None:
        """All scores are finite."""
        history = handful().history(1)
        model = surrogate.start(history.space)
        model.fit(history)
        assert np.isfinite(model.score(history.vectors)).all()

    @pytest.mark.parametrize("value", [np.inf, "raise"])
    def test_broken_features_leave_the_surrogate_unfitted(self, surrogate: Part[Surrogate], value: Any) -> None:
        """A template's description may be wrong; the search continues without a surrogate."""
        space = Space([option_knob("a", list(range(20)))], describe=lambda columns: _BrokenDescription(columns, value))
        history = History(space, 1)
        vectors = space.vectors(range(10))
        history.add(vectors, [Measurement(Status.OK, latency_s=1.0 + index) for index in range(10)])
        model = surrogate.start(space)
        model.fit(history)
        assert not model.fitted
        np.testing.assert_array_equal(model.score(vectors), np.zeros(10))


class _BrokenDescription:
    """A description whose features all have one value, or raise."""

    feature_names: Sequence[str] = ("first", "second")

    def __init__(self, columns: Columns, value: Any) -> None:
        self.n_configs, self.value = len(columns["a"]), value

    def features(self) -> NDArray[np.float32]:
        if self.value == "raise":
            raise ZeroDivisionError("a bug in a template")
        return np.full((self.n_configs, 2), self.value, dtype=np.float32)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.argsort(np.argsort(values))


@cache
def _shared_history() -> History:
    """Return the history that all tests share; no test changes it."""
    return bowl().history(400)


@cache
def _unseen_history() -> History:
    return bowl().history(400, seed=1)
