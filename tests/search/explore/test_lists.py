"""Searches without learning: what is proposed follows from merits and from the fastest configs alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anole.search.explore.by_merit import ByMerit
from anole.search.explore.descent import Descent
from anole.search.explore.exhaustive import Exhaustive
from anole.search.surrogate.none import NoSurrogate
from anole.space import Constraint, Space, option_knob

from ..conftest import measured

SPACE = Space(
    [option_knob("a", list(range(12))), option_knob("b", list(range(9)))],
    [Constraint("not there", lambda columns: (columns["a"] != 5) | (columns["b"] != 3))],
    merit=lambda columns: columns["a"] + 100.0 * columns["b"],
)


def proposed(explorer, history, seed=0):
    return explorer.propose(NoSurrogate(), history, np.random.default_rng(seed)).vectors.tolist()


def test_everything_is_listed_by_merit_though_the_space_is_large(monkeypatch):
    monkeypatch.setattr("anole.space.space._ENUMERABLE", 0)
    space = replace(SPACE)
    assert space.valid_indices is None
    listed = proposed(Exhaustive(1000), measured(space))
    assert space.valid_indices is not None and len(listed) == len(SPACE.every_valid_index)
    assert listed == proposed(ByMerit(1000), measured(SPACE))


def test_a_list_by_merit_is_sorted_and_leaves_out_what_was_measured():
    best = [[11, 8], [10, 8], [9, 8], [8, 8]]
    assert proposed(ByMerit(4), measured(SPACE)) == best == proposed(ByMerit(4), measured(SPACE), seed=1)
    assert proposed(ByMerit(2), measured(SPACE, np.array(best[:2]), [1.0, 2.0])) == best[2:]


def test_where_nothing_is_known_a_list_is_drawn():
    plain = replace(SPACE, merit=None)
    assert len(proposed(ByMerit(6), measured(plain))) == 6
    assert proposed(ByMerit(6), measured(plain)) != proposed(ByMerit(6), measured(plain), seed=1)


def test_a_descent_goes_to_valid_neighbours_of_the_fastest_first():
    history = measured(SPACE, np.array([[0, 0], [5, 4], [6, 4]]), [9.0, 1.0, 2.0])
    only = Descent(n_best=1, led_share=1.0, n_candidates=2)
    assert sorted(proposed(only, history)) == [[4, 4], [5, 5]], "one is invalid, and one was measured"
    both = proposed(Descent(n_best=1, led_share=0.5, n_candidates=4), history)
    assert sorted(both) == [[4, 4], [5, 5], [10, 8], [11, 8]]
    assert proposed(Descent(n_candidates=2), measured(SPACE)) == [[11, 8], [10, 8]], "it begins with the list"
