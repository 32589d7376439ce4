"""Controls for search comparisons: samplers with the batch sizes of another run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anole.bench.quality import batch_sizes
from anole.search.presets import read_tuner
from anole.search.roles import Candidates, History
from anole.search.state import Subject
from anole.search.watch import Watch
from anole.testing.formulas import bowl
from anole.testing.in_memory import tune_in_memory
from anole.testing.sampler_contract import SamplerContract
from kit.controls import SizedAmongBest, SizedGreedy


class TestSamplers(SamplerContract):
    @pytest.fixture(params=[SizedGreedy(), SizedAmongBest()], ids=lambda settings: settings.name)
    def sampler(self, request):
        return request.param


@pytest.mark.guard
@pytest.mark.parametrize("control", [SizedGreedy, SizedAmongBest])
def test_a_run_has_the_batch_sizes_of_another(control):
    formula = bowl()

    def sizes_of(settings):
        trials = []
        watch = Watch(trial=trials.append)
        tune_in_memory(
            Subject(formula.space, formula.flop, "task"), settings, formula.measure, 120, seed=0, watch=watch
        )
        return batch_sizes(trials)

    adaptive = read_tuner({"preset": "chameleon", "explorer": {"name": "annealing", "n_steps": 40}})
    sizes = sizes_of(adaptive)
    assert sizes_of(replace(adaptive, sampler=control(sizes=tuple(sizes)))) == sizes
    assert len(set(sizes)) > 1 and sum(sizes) == 120
    assert sizes_of(replace(adaptive, sampler=control(sizes=(5, 7)))) == [5, 7, 64, 44], "then full batches"


def test_samples_only_among_the_best():
    space = bowl().space
    vectors = space.sample(200, np.random.default_rng(0))
    candidates = Candidates(vectors, np.linspace(1, 0, 200))
    sampler = SizedAmongBest(n_best=10, sizes=(4,)).start(space)
    batches = [sampler.choose(candidates, History(space, 1), 64, np.random.default_rng(seed)) for seed in range(40)]
    assert {len(each) for each in batches} == {4}
    found = {index for each in batches for index in space.indices(each).tolist()}
    best = set(space.indices(vectors[:10]).tolist())
    assert found == best
    mixed = SizedAmongBest(n_best=10, sizes=(4, 2), least_random=3).start(space)
    batch = mixed.choose(candidates, History(space, 1), 64, np.random.default_rng(0))
    assert [index in best for index in space.indices(batch).tolist()] == [True, False, False, False]
