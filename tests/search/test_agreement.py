"""The rank correlation of predictions and measurements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from anole.search.agreement import rank_correlation

FIGURES = st.lists(st.integers(0, 6), min_size=4, max_size=20)


@given(FIGURES, st.randoms(use_true_random=False))
def test_it_is_spearmans(figures: list[int], random: object) -> None:
    others = list(figures)
    random.shuffle(others)
    one, other = np.array(figures, dtype=float), np.array(others, dtype=float)
    found = rank_correlation(one, other)
    if len(set(figures)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(spearmanr(one, other).statistic)


def test_a_perfect_order_is_one_and_the_opposite_is_minus_one() -> None:
    speeds = np.array([1.0, 10.0, 100.0, 1000.0])
    assert rank_correlation(np.log(speeds), speeds) == pytest.approx(1)
    assert rank_correlation(-speeds, speeds) == pytest.approx(-1)


def test_few_figures_tell_nothing() -> None:
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])) is None
