"""Searches without learning: at random, by merit, of all configs, or around the fastest ones."""

from dataclasses import replace

import numpy as np

from anole.search.explore.descent import Descent
from anole.search.explore.unguided import ByMerit, Exhaustive, Random
from anole.search.surrogate.none import NoSurrogate
from anole.space import Constraint, Space, option_knob

from ..conftest import history_of

SPACE = Space(
    [option_knob("a", list(range(12))), option_knob("b", list(range(9)))],
    [Constraint("not there", lambda columns: (columns["a"] != 5) | (columns["b"] != 3))],
    merit=lambda columns: columns["a"] + 100.0 * columns["b"],
)


def suggest(explorer, history, seed=0):
    return explorer.propose(NoSurrogate(), history, np.random.default_rng(seed)).vectors.tolist()


def test_exhaustive_search_enumerates_large_spaces(monkeypatch):
    monkeypatch.setattr("anole.space.space._MAX_ENUMERABLE", 0)
    space = replace(SPACE)
    assert space.valid_indices is None
    listed = suggest(Exhaustive(1000), history_of(space))
    assert space.n_programs == len(listed) == len(SPACE.all_valid_indices)
    assert listed == suggest(ByMerit(1000), history_of(replace(SPACE, is_enumerated=True)))
    plain = replace(SPACE, merit=None)
    assert sorted(suggest(Exhaustive(1000), history_of(plain))) == sorted(listed)


def test_by_merit_sorts_the_unmeasured_configs():
    best = [[11, 8], [10, 8], [9, 8], [8, 8]]
    assert suggest(ByMerit(4), history_of(SPACE)) == best == suggest(ByMerit(4), history_of(SPACE), seed=1)
    assert suggest(ByMerit(2), history_of(SPACE, np.array(best[:2]), [1.0, 2.0])) == best[2:]


def test_without_a_merit_by_merit_samples_at_random():
    plain = replace(SPACE, merit=None)
    assert len(suggest(ByMerit(6), history_of(plain))) == 6
    assert suggest(ByMerit(6), history_of(plain)) != suggest(ByMerit(6), history_of(plain), seed=1)


def test_descent_proposes_valid_neighbors_of_the_fastest_first():
    history = history_of(SPACE, np.array([[0, 0], [5, 4], [6, 4]]), [9.0, 1.0, 2.0])
    only = Descent(n_best=1, led_share=1.0, n_candidates=2)
    assert sorted(suggest(only, history)) == [[4, 4], [5, 5]], "one is invalid, and one was measured"
    both = suggest(Descent(n_best=1, led_share=0.5, n_candidates=4), history)
    assert sorted(both) == [[4, 4], [5, 5], [10, 8], [11, 8]]
    assert suggest(Descent(n_candidates=2), history_of(SPACE)) == [[11, 8], [10, 8]], "it begins with the list"


def test_valid_configs_are_sampled_uniformly(formula):
    small, rng = formula("handful"), np.random.default_rng(0)
    sampled = [Random(n_candidates=2).propose(NoSurrogate(), small.history(0), rng).vectors for _ in range(2000)]
    indices, counts = np.unique(small.space.indices(np.concatenate(sampled)), return_counts=True)
    np.testing.assert_array_equal(indices, small.space.valid_indices)
    assert counts.sum() == 4000 and np.abs(counts - 500).max() < 100
