"""Controls for search comparisons: samplers with the batch sizes of another run."""

from dataclasses import replace

import pytest

from anole.search.presets import read_tuner
from anole.search.state import Subject
from anole.search.watch import Watch
from anole.testing.formulas import bowl
from anole.testing.in_memory import tune_in_memory
from anole.testing.sampler_contract import SamplerContract
from kit.controls import SizedGreedy
from kit.quality import batch_sizes


class TestSamplers(SamplerContract):
    @pytest.fixture
    def sampler(self):
        return SizedGreedy()


@pytest.mark.guard
def test_a_run_has_the_batch_sizes_of_another():
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
    assert sizes_of(replace(adaptive, sampler=SizedGreedy(sizes=tuple(sizes)))) == sizes
    assert len(set(sizes)) > 1 and sum(sizes) == 120
    assert sizes_of(replace(adaptive, sampler=SizedGreedy(sizes=(5, 7)))) == [5, 7, 64, 44], "then full batches"
