"""Guided annealing: its first candidates, and that it then equals annealing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anole.record import Measurement, Status
from anole.search.explore.annealing import Annealing
from anole.search.explore.guided_annealing import GuidedAnnealing
from anole.search.explore.unguided import draw
from anole.search.presets import PRESETS
from anole.search.roles import History
from anole.search.state import Search, Subject
from anole.search.surrogate.none import NoSurrogate
from anole.space import Space
from anole.targets import get_target
from anole.targets.base import DeviceLocation
from anole.targets.cpu.settings import describe_cpu
from anole.task import Conv2d
from anole_cuda.settings import describe_cuda
from anole_vta.settings import describe_vta

from ..conftest import history_of, propose


@pytest.fixture
def guided(bowl) -> Space:
    """A space with a merit that prefers wide register tiles of filters."""
    return replace(bowl.space, merit=lambda columns: columns["tile_f"][:, 3])


def first_candidates(history, seed=0, **settings):
    return propose(GuidedAnnealing(**settings), NoSurrogate(), history, seed).vectors


@pytest.mark.parametrize("share", [0.0, 0.5, 0.75, 1.0])
def test_every_batch_has_the_share_of_high_merit(guided, share):
    vectors = first_candidates(history_of(guided), led_share=share, n_candidates=16)
    best = guided.indices(guided.promising(16, np.random.default_rng(0)))
    led = np.isin(guided.indices(vectors), best)
    for batch in (4, 8):
        assert abs(led[:batch].sum() - share * batch) <= 1


def test_measured_configs_are_not_proposed(guided):
    history = history_of(guided, first_candidates(history_of(guided))[:8])
    again = guided.indices(first_candidates(history, seed=1))
    assert not np.isin(again, history.visited).any() and len(np.unique(again)) == len(again)


def test_without_a_merit_candidates_are_uniform(bowl):
    history = history_of(bowl.space)
    expected = draw(history, 128, np.random.default_rng(0))
    np.testing.assert_array_equal(first_candidates(history), expected.vectors)


def test_with_a_fitted_surrogate_it_equals_annealing(bowl, oracle):
    each = (Annealing(), GuidedAnnealing(n_restarted=0))
    np.testing.assert_array_equal(*(propose(settings, oracle, bowl.history(80)).vectors for settings in each))


def test_chains_restart_at_the_fastest_measured_configs(bowl, oracle):
    history = bowl.history(80)
    explorer = GuidedAnnealing(n_steps=1, n_restarted=16).start(bowl.space)
    explorer.propose(oracle, history, np.random.default_rng(0))
    fastest = history.vectors[np.argsort(-history.gflops, kind="stable")[:8]]
    # Each chain moves in at most one knob.
    assert ((explorer._points[:16] != np.tile(fastest, (2, 1))).sum(axis=1) <= 1).all()


@pytest.mark.parametrize("share", [0.0, 0.75])
def test_the_default_config_comes_first_until_it_is_measured(guided, share):
    default = guided.config(guided.sample(1, np.random.default_rng(5))[0])
    history = History(guided, 1, default=default)
    vectors = first_candidates(history, led_share=share)
    assert guided.config(vectors[0]) == default
    assert len(np.unique(guided.indices(vectors))) == len(vectors)
    history.add(vectors[:1], [Measurement(Status.OK, latency_s=1.0)])
    assert default not in [guided.config(vector) for vector in first_candidates(history)]


@pytest.mark.parametrize("description", [describe_cpu(), describe_cuda("sm_90"), describe_vta()])
def test_anole_begins_with_the_default_config_unless_the_merit_is_a_speed(description):
    target, layer = get_target(description), Conv2d(1, 56, 56, 64, 64, (3, 3), padding=(1, 1, 1, 1))
    space, default = target.space(layer), target.default_config(layer)
    search = Search(Subject(space, layer.flop, "task", default=default), PRESETS["anole"], seed=0)
    batch = [space.config(vector) for vector in search.choose(search.propose())]
    assert space.merit_is_speed == (target.location is not DeviceLocation.PROCESSOR)
    if not space.merit_is_speed:
        assert batch[0] == default
    else:
        sampled = space.merit(space.columns(space.sample(500, np.random.default_rng(0))))
        assert default not in batch and min(map(space.merit_of, batch)) > np.median(sampled)


def test_the_best_configs_of_each_shared_value_are_tried_first(guided):
    few = {
        "tile_x": guided.knobs[1].values[:4],
        "order": guided.knobs[3].values[:1],
        "unroll": guided.knobs[4].values[:1],
    }
    space = replace(guided.restrict(few), shared=("tile_x",))
    vectors = space.vectors(space.all_valid_indices)
    merits, values = space.merit(space.columns(vectors)), vectors[:, 1]
    expected = [np.sort(merits[values == value])[-2:].tolist() for value in np.unique(values)]
    first = first_candidates(history_of(space), n_per_shared=2)[: 2 * len(expected)]
    proposed = [np.sort(space.merit(space.columns(first[first[:, 1] == at]))).tolist() for at in np.unique(values)]
    assert proposed == expected
    assert sorted(first[: len(expected), 1]) == sorted(np.unique(values)), "each value once, before any value twice"
