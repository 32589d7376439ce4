"""Boosted trees: the metric that stops them, and both objectives."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.surrogate.boosted_trees import BoostedTrees, average_recall

from ...examples import examples


def recall_by_definition(predicted, scores, n_top):
    order = sorted(range(len(scores)), key=lambda row: -scores[row])
    guess = sorted(range(len(scores)), key=lambda row: -predicted[row])
    n_top = min(n_top, len(scores))
    return sum(len(set(order[:n]) & set(guess[:n])) / n for n in range(1, n_top + 1)) / n_top


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30), st.integers(1, 40))
def test_average_recall_is_its_definition(pairs, n_top):
    predicted, scores = np.array(pairs, dtype=float).T
    assert average_recall(predicted, scores, n_top) == pytest.approx(recall_by_definition(predicted, scores, n_top))


def test_average_recall_of_the_truth_is_one_and_of_its_reverse_is_low():
    scores = np.random.default_rng(0).random(200)
    assert average_recall(3 * scores - 1, scores, 64) == pytest.approx(1.0)
    assert average_recall(-scores, scores, 64) == pytest.approx(0.0)


@pytest.mark.parametrize("objective", ["regression", "ranking"])
def test_both_objectives_rank_unseen_configs(formula, objective):
    bowl = formula("bowl")
    surrogate = BoostedTrees(objective=objective).start(bowl.space)
    surrogate.fit(bowl.history(512))
    unseen = bowl.history(512, seed=1)
    scores = surrogate.score(unseen.vectors)
    rank_correlation = np.corrcoef(np.argsort(np.argsort(scores)), np.argsort(np.argsort(unseen.scores)))[0, 1]
    assert rank_correlation > 0.85
    assert -0.5 < scores.min() < 0.2 and 0.7 < scores.max() < 1.3


def test_regression_predicts_speed_relative_to_the_best(formula):
    history = formula("bowl").history(512)
    surrogate = BoostedTrees().start(history.space)
    surrogate.fit(history)
    assert np.abs(surrogate.score(history.vectors) - history.scores).mean() < 0.05


def test_boosting_stops_early_and_at_the_latest_at_the_cap(formula):
    history = formula("bowl").history(200)
    rounds = {}
    for patience, cap in ((5, 300), (40, 300), (300, 12)):
        surrogate = BoostedTrees(patience=patience, max_rounds=cap).start(history.space)
        surrogate.fit(history)
        rounds[patience] = surrogate._booster.num_boosted_rounds()
    assert rounds[5] < rounds[40] < 300
    assert rounds[300] == 12


def test_a_failed_fit_is_logged_and_the_next_one_counts(formula, caplog):
    bowl = formula("bowl")
    surrogate = BoostedTrees().start(bowl.space)
    surrogate.fit(bowl.history(50))
    features = surrogate.space.features
    surrogate.space.features = lambda vectors: np.full((len(vectors), 3), np.inf, dtype=np.float32)
    with caplog.at_level(logging.WARNING):
        surrogate.fit(bowl.history(50))
    assert not surrogate.fitted and "surrogate failed" in caplog.text
    surrogate.space.features = features
    surrogate.fit(bowl.history(50))
    assert surrogate.fitted


def test_a_failed_prediction_is_logged_and_the_search_goes_on_without(formula, caplog):
    history = formula("bowl").history(50)
    surrogate = BoostedTrees().start(history.space)
    surrogate.fit(history)
    surrogate.space.features = lambda vectors: np.zeros((len(vectors), 1), dtype=np.float32)
    with caplog.at_level(logging.WARNING):
        assert not surrogate.score(history.vectors).any()
    assert not surrogate.fitted and "surrogate failed" in caplog.text
