"""Surrogates whose model fails: the search continues without it."""

import numpy as np
import pytest

from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.search.surrogate.forest import Forest


@pytest.fixture
def history(formula):
    return formula("bowl").history(50)


@pytest.fixture(params=[BoostedTrees(), Forest()], ids=lambda settings: settings.name)
def surrogate(request, history):
    surrogate = request.param.start(history.space)
    surrogate.fit(history)
    return surrogate


def test_a_failed_fit_is_logged_and_the_next_one_works(surrogate, history, monkeypatch, caplog):
    with monkeypatch.context() as broken:
        broken.setattr(surrogate.space, "features", lambda vectors: np.full((50, 3), np.inf, dtype=np.float32))
        surrogate.fit(history)
    assert not surrogate.fitted and "surrogate failed" in caplog.text
    surrogate.fit(history)
    assert surrogate.fitted


def test_a_failed_prediction_is_logged_and_leaves_the_surrogate_unfitted(surrogate, history, monkeypatch, caplog):
    monkeypatch.setattr(surrogate.space, "features", lambda vectors: "no features")
    assert not surrogate.score(history.vectors).any()
    assert not surrogate.fitted and "surrogate failed" in caplog.text
    assert not surrogate.spread(history.vectors).any()
