"""Presets and what models.yaml may override of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.errors import SpecError
from anole.keys import canonical_json
from anole.record import Run
from anole.search.evaluators.fixed import Fixed
from anole.search.explore.annealing import Annealing
from anole.search.explore.random import Random
from anole.search.presets import PRESETS, read_tuner
from anole.search.sample.epsilon_greedy import EpsilonGreedy
from anole.search.sample.first import First
from anole.search.surrogate.blind import Blind
from anole.search.surrogate.boosted_trees import BoostedTrees


def test_autotvm_is_what_was_published():
    assert PRESETS["autotvm"].to_json() == {
        "preset": "autotvm",
        "explorer": {
            "name": "annealing",
            "n_chains": 128,
            "n_steps": 500,
            "start_temperature": 1.0,
            "end_temperature": 0.0,
            "patience": 50,
            "patience_over": 64,
            "n_candidates": 128,
        },
        "sampler": {"name": "greedy", "epsilon": 0.05, "diversity_ratio": 2.0, "diversity_weight": 0.02},
        "surrogate": {
            "name": "boosted_trees",
            "objective": "regression",
            "max_depth": 3,
            "learning_rate": 0.3,
            "gamma": 1e-4,
            "min_child_weight": 1.0,
            "reg_lambda": 1.0,
            "reg_alpha": 0.0,
            "max_rounds": 300,
            "patience": 20,
            "recall_at": 64,
        },
        "evaluator": {"name": "fixed", "number": 4, "repeats": 3, "max_s": None},
        "batch": 64,
        "n_confirm": 16,
        "min_gain": None,
        "warm_start": False,
        "max_iterations": None,
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_read_by_its_name_and_is_plain(preset):
    settings = read_tuner({"preset": preset})
    assert settings == PRESETS[preset]
    assert json.loads(canonical_json(settings.to_json())) == settings.to_json()


def test_the_default_preset():
    assert read_tuner({}) == PRESETS["anole"]


def parts(preset):
    settings = read_tuner({"preset": preset})
    return settings.explorer, settings.sampler, settings.surrogate, settings.evaluator


def test_the_papers_presets_have_the_papers_constants():
    """Chameleon, tables 7 and 9; AdaTune, section 4 and appendix A."""
    for preset in ("release", "chameleon"):
        explorer, sampler, surrogate, evaluator = parts(preset)
        assert (explorer.name, sampler.name, surrogate, evaluator) == ("ppo", "adaptive", BoostedTrees(), Fixed())
        assert (explorer.n_episodes, explorer.n_steps, explorer.shared_layer) == (128, 500, True)
        assert (explorer.learning_rate, explorer.discount, explorer.gae_lambda) == (1e-3, 0.9, 0.99)
        assert (explorer.n_epochs, explorer.clip) == (3, 0.3)
        assert (explorer.value_coefficient, explorer.entropy_coefficient) == (1.0, 0.1)
        assert (sampler.k_min, sampler.k_max, sampler.threshold, sampler.synthesis) == (8, 64, 2.5, "mode")
        assert read_tuner({"preset": preset}).batch == 64
        assert explorer.converged_share == 0.75, "both codes end an episode when three quarters of the knobs stay"
    assert (parts("release")[0].min_steps, parts("chameleon")[0].min_steps) == (129, 0), "only RELEASE's code waits"
    explorer, sampler, surrogate, evaluator = parts("adatune")
    assert (explorer.name, explorer.n_probes, sampler.name) == ("contextual", 20, "contextual")
    assert (explorer.n_candidates, explorer.patience_over) == (64, 32), "twice the plan, and the plan"
    assert (surrogate.name, surrogate.n_trees, surrogate.max_features) == ("forest", 10, 10)
    assert (evaluator.micro_batch, evaluator.micro_batch * evaluator.max_micro_batches) == (50, 500)
    assert (evaluator.threshold, read_tuner({"preset": "adatune"}).batch) == (0.1, 32)


def test_dcoc_trains_with_the_constants_of_mappo():
    """Yu et al.'s code: config.py, and train_mpe_spread.sh for learning rate, epochs and minibatches."""
    explorer, sampler, surrogate, evaluator = parts("dcoc")
    assert (explorer.name, sampler.name, surrogate, evaluator) == ("mappo", "confidence", BoostedTrees(), Fixed())
    assert (explorer.learning_rate, explorer.n_epochs, explorer.n_minibatches) == (7e-4, 10, 1)
    assert (explorer.clip, explorer.entropy_coefficient, explorer.normalized_values) == (0.2, 0.01, True)
    assert (explorer.discount, explorer.gae_lambda) == (0.9, 0.99), "Chameleon's"
    assert (explorer.observes, explorer.critic) == ("all", "actions"), "algorithm 1, line 6, and equation 1"


def test_parts_that_changed_have_runs_of_their_own():
    """Records of parts that proposed other configs are not taken for theirs."""
    versions = {
        name: [part.get("version", 1) for part in settings.to_json().values() if isinstance(part, dict)]
        for name, settings in PRESETS.items()
    }
    assert {name for name, found in versions.items() if max(found) > 1} == {"release", "chameleon", "dcoc"}
    with pytest.raises(SpecError, match="version"):
        read_tuner({"preset": "dcoc", "explorer": {"version": 1}})


def test_only_the_default_starts_warm():
    assert [name for name, settings in PRESETS.items() if settings.warm_start] == ["anole"]


def test_parts_are_overridden_by_name_or_by_settings():
    settings = read_tuner(
        {
            "preset": "autotvm",
            "explorer": "random",
            "sampler": {"name": "first"},
            "surrogate": {"objective": "ranking", "max_rounds": 50},
            "evaluator": {"name": "fixed", "repeats": 10},
            "batch": 16,
            "n_confirm": 0,
        }
    )
    assert (settings.explorer, settings.sampler) == (Random(), First())
    assert settings.surrogate == BoostedTrees(objective="ranking", max_rounds=50)
    assert settings.evaluator == Fixed(repeats=10)
    assert (settings.batch, settings.n_confirm, settings.preset) == (16, 0, "autotvm")


def test_any_row_can_be_recombined():
    settings = read_tuner({"preset": "random", "explorer": {"name": "annealing", "n_steps": 10}, "sampler": "greedy"})
    assert (settings.explorer, settings.sampler, settings.surrogate) == (
        Annealing(n_steps=10),
        EpsilonGreedy(),
        Blind(),
    )


@given(st.sampled_from(sorted(PRESETS)), st.integers(1, 256), st.integers(0, 64), st.integers(1, 4096))
def test_the_plain_form_reads_back(preset, batch, n_confirm, n_chains):
    settings = read_tuner(
        {
            "preset": preset,
            "batch": batch,
            "n_confirm": n_confirm,
            "explorer": {"name": "annealing", "n_chains": n_chains},
        }
    )
    assert read_tuner(settings.to_json()) == settings


def test_every_setting_is_part_of_the_run_key():
    def key(**plain):
        return Run("task", "autotvm", 0, 1, read_tuner({"preset": "autotvm", **plain}).to_json()).key

    keys = [
        key(),
        key(batch=32),
        key(explorer={"n_steps": 499}),
        key(sampler={"epsilon": 0.1}),
        key(evaluator={"number": 5}),
    ]
    assert len(set(keys)) == len(keys)
    assert key(sampler={"diversity_ratio": 2}) == key()


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (
            {"preset": "autotwm"},
            "tuning.preset: unknown preset 'autotwm'; did you mean 'autotvm'? allowed: random, autotvm,",
        ),
        ({"preset": "autotwm"}, "did you mean 'autotvm'?"),
        ({"preset": ["autotvm"]}, "tuning.preset: unknown preset ['autotvm']"),
        ({"preset": None}, "tuning.preset: unknown preset None"),
        (
            {"explorer": "anealing"},
            "tuning.explorer: unknown explorer 'anealing'; did you mean 'annealing'? allowed: annealing, ",
        ),
        ({"explorer": "anealing"}, "did you mean 'annealing'?"),
        ({"explorer": {"name": "ppoo"}}, "tuning.explorer.name: unknown explorer 'ppoo'"),
        ({"explorer": 7}, "tuning.explorer: unknown explorer 7"),
        ({"explorer": None}, "tuning.explorer: unknown explorer None"),
        ({"sampler": {"epsilon": 2}}, "tuning.sampler.epsilon: is 2, not a number from 0 to 1"),
        (
            {"surrogate": {"objective": "rank"}},
            "tuning.surrogate.objective: is 'rank', not one of regression, ranking",
        ),
        (
            {"surrogate": {"name": "none", "max_depth": 3}},
            "tuning.surrogate.max_depth: is not known; allowed: nothing",
        ),
        ({"evaluator": {"repeats": 0}}, "tuning.evaluator.repeats: is 0"),
        ({"batch": 0}, "tuning.batch: is 0, not a whole number from 1 to 256"),
        ({"n_confirm": -1}, "tuning.n_confirm: is -1"),
        (
            {"explorers": "random"},
            "tuning.explorers: unknown setting 'explorers'; did you mean 'explorer'? allowed: preset, explorer,",
        ),
        ({"explorers": "random"}, "did you mean 'explorer'?"),
        ({"trials": 64}, "tuning.trials: unknown setting 'trials'"),
    ],
)
def test_mistakes_name_the_place_what_was_found_and_what_is_allowed(plain, message):
    with pytest.raises(SpecError) as caught:
        read_tuner({"preset": "autotvm", **plain})
    assert message in str(caught.value)


def test_the_path_is_the_callers():
    with pytest.raises(SpecError, match=r"builds\[1\].preset"):
        read_tuner({"preset": "x"}, "builds[1]")


def test_reading_presets_is_cheap():
    """The Snakefile does it in every process."""
    heavy = ["xgboost", "scipy", "sklearn", "torch", "tvm", "pandas"]
    code = (
        f"import sys, anole.search.presets, anole.search.loop; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
