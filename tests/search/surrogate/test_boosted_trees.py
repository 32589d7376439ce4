"""Boosted trees: the metric that stops them, and both objectives."""

import subprocess
import sys

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.search.surrogate.boosted_trees import BoostedTrees, average_recall

from ...examples import examples
from ..conftest import fit, ranks


def recall_by_definition(predicted, scores, n_top):
    order = sorted(range(len(scores)), key=lambda row: -scores[row])
    guess = sorted(range(len(scores)), key=lambda row: -predicted[row])
    n_top = min(n_top, len(scores))
    return sum(len(set(order[:n]) & set(guess[:n])) / n for n in range(1, n_top + 1)) / n_top


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30), st.integers(1, 40))
def test_average_recall_matches_its_definition(pairs, n_top):
    predicted, scores = np.array(pairs, dtype=float).T
    assert average_recall(predicted, scores, n_top) == pytest.approx(recall_by_definition(predicted, scores, n_top))


def test_average_recall_is_1_for_the_truth_and_0_for_its_reverse():
    scores = np.random.default_rng(0).random(200)
    assert average_recall(3 * scores - 1, scores, 64) == pytest.approx(1.0)
    assert average_recall(-scores, scores, 64) == pytest.approx(0.0)


@pytest.mark.parametrize("objective", ["regression", "ranking"])
def test_both_objectives_rank_unseen_configs(bowl, objective):
    history, unseen = bowl.history(512), bowl.history(512, seed=1)
    surrogate = fit(BoostedTrees(objective=objective), history)
    scores = surrogate.score(unseen.vectors)
    assert np.corrcoef(ranks(scores), ranks(unseen.scores))[0, 1] > 0.85
    assert -0.5 < scores.min() < 0.2 and 0.7 < scores.max() < 1.3
    if objective == "regression":
        assert np.abs(surrogate.score(history.vectors) - history.scores).mean() < 0.05, "speed relative to the best"


def test_boosting_stops_early_or_at_max_rounds(bowl, monkeypatch):
    history, boosted, train = bowl.history(200), [], xgboost.train
    monkeypatch.setattr(xgboost, "train", lambda *given, **named: boosted.append(train(*given, **named)) or boosted[-1])
    for patience, cap in ((5, 300), (40, 300), (300, 12)):
        fit(BoostedTrees(patience=patience, max_rounds=cap), history)
    hasty, patient, capped = (booster.num_boosted_rounds() for booster in boosted)
    assert hasty < patient < 300 and capped == 12


def test_boosted_trees_do_not_import_scikit_learn():
    code = """
import sys
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.space import Space, option_knob
BoostedTrees().start(Space([option_knob("a", (1, 2))]))
assert "xgboost" in sys.modules and not [name for name in sys.modules if name.startswith(("sklearn", "scipy.stats"))]
from sklearn.cluster import KMeans
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
