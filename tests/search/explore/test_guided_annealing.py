"""Guided annealing: what it begins with, and that it goes on as annealing does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anole.search.explore.annealing import Annealing
from anole.search.explore.guided_annealing import GuidedAnnealing
from anole.search.explore.random import draw
from anole.search.presets import PRESETS
from anole.search.roles import History
from anole.search.state import Search, Subject
from anole.search.surrogate.blind import Blind
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.space import Space
from anole.targets import get_target
from anole.targets.base import Place
from anole.targets.cpu.settings import describe_cpu
from anole.targets.cuda.settings import describe_cuda
from anole.targets.vta.settings import describe_vta
from anole.task import Conv2d


@pytest.fixture
def guided(formula) -> Space:
    """A space with a merit of its own: wide registers of filters."""
    return replace(formula("bowl").space, merit=lambda columns: columns["tile_f"][:, 3])


def propose(settings, history, seed=0):
    explorer, surrogate = settings.start(history.space), Blind().start(history.space)
    return explorer.propose(surrogate, history, np.random.default_rng(seed)).vectors


def widths(space, vectors):
    return space.columns(vectors)["tile_f"][:, 3]


@pytest.mark.parametrize("share", [0.0, 0.5, 0.75, 1.0])
def test_the_first_have_the_share_of_merit_whatever_the_batch(guided, share):
    history = History(guided, 1)
    vectors = propose(GuidedAnnealing(led_share=share, n_candidates=16), history)
    best = guided.indices(guided.promising(16, np.random.default_rng(0)))
    led = np.isin(guided.indices(vectors), best)
    for batch in (4, 8):
        assert abs(led[:batch].sum() - share * batch) <= 1


def test_what_was_measured_is_not_begun_with(formula, guided):
    history = History(guided, formula("bowl").flop)
    first = propose(GuidedAnnealing(), history)
    history.add(first[:8], list(formula("bowl").measure([guided.config(vector) for vector in first[:8]])))
    again = guided.indices(propose(GuidedAnnealing(), history, seed=1))
    assert not np.isin(again, history.visited).any() and len(np.unique(again)) == len(again)


def test_where_no_merit_is_known_it_begins_as_chance_has_it(formula):
    history = History(formula("bowl").space, 1)
    uniform = draw(history, 128, np.random.default_rng(0)).vectors
    np.testing.assert_array_equal(propose(GuidedAnnealing(), history), uniform)


def test_a_fitted_surrogate_leads_it_as_it_leads_annealing(formula):
    history = formula("bowl").history(80)
    surrogate = BoostedTrees().start(history.space)
    surrogate.fit(history)
    found = [
        settings.start(history.space).propose(surrogate, history, np.random.default_rng(0)).vectors
        for settings in (Annealing(), GuidedAnnealing())
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("share", [0.0, 0.75])
def test_the_default_config_is_the_first_and_occurs_once(guided, share):
    default = guided.config(guided.sample(1, np.random.default_rng(5))[0])
    history = History(guided, 1, default=default)
    vectors = propose(GuidedAnnealing(led_share=share), history)
    assert guided.config(vectors[0]) == default
    assert len(np.unique(guided.indices(vectors))) == len(vectors)


@pytest.mark.parametrize("description", [describe_cpu(), describe_cuda("sm_90"), describe_vta()])
def test_anole_begins_with_the_default_config_unless_the_merit_is_a_speed(description):
    target, layer = get_target(description), Conv2d(1, 56, 56, 64, 64, (3, 3), padding=(1, 1, 1, 1))
    space, default = target.space(layer), target.default_config(layer)
    search = Search(Subject(space, layer.flop, "task", default=default), PRESETS["anole"], seed=0)
    batch = [space.config(vector) for vector in search.choose(search.propose())]
    assert space.merit_is_speed == (target.place is not Place.PROCESSOR)
    if not space.merit_is_speed:
        assert batch[0] == default
    else:
        drawn = space.merit(space.columns(space.sample(500, np.random.default_rng(0))))
        assert default not in batch and min(map(space.merit_of, batch)) > np.median(drawn)


def test_the_default_config_is_proposed_only_before_the_first_trial(formula, guided):
    default = guided.config(guided.sample(1, np.random.default_rng(5))[0])
    history = History(guided, formula("bowl").flop, default=default)
    history.add(guided.vector(default)[None, :], list(formula("bowl").measure([default])))
    assert default not in [guided.config(vector) for vector in propose(GuidedAnnealing(), history)]
