"""Presets, their overrides in models.yaml, and parts from installed packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.errors import SpecError
from anole.keys import canonical_json
from anole.record import Run
from anole.search.evaluators.fixed import Fixed
from anole.search.explore.annealing import Annealing
from anole.search.explore.unguided import Random
from anole.search.presets import PRESETS, read_tuner
from anole.search.sample.epsilon_greedy import EpsilonGreedy
from anole.search.sample.first import First
from anole.search.surrogate.boosted_trees import BoostedTrees
from anole.search.surrogate.none import NoSurrogate

GREEDY = {"name": "greedy", "epsilon": 0.05, "diversity_ratio": 2.0, "diversity_weight": 0.02}


def test_autotvm_has_its_published_settings():
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
        "sampler": {**GREEDY, "least_random": 1},
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


def test_added_settings_are_stored_only_if_not_the_default():
    """This keeps the keys of recorded runs."""
    assert read_tuner({"preset": "dcoc", "sampler": "greedy"}).to_json()["sampler"] == GREEDY
    changed = read_tuner({"preset": "dcoc", "sampler": {"name": "greedy", "least_random": 2}}).to_json()
    assert changed["sampler"] == {**GREEDY, "least_random": 2}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_read_by_its_name_and_converts_to_json(preset):
    settings = read_tuner({"preset": preset})
    assert settings == PRESETS[preset]
    assert json.loads(canonical_json(settings.to_json())) == settings.to_json()


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
        assert (sampler.clustered, sampler.n_random) == ("widest", 3), "as in the authors' code"
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
    assert explorer.n_candidates is None, "algorithm 2 samples among all visited configs"


def test_changed_parts_have_a_new_version():
    """Records of an older version of a part, which proposed other configs, are not reused."""
    versions = {
        name: [part.get("version", 1) for part in settings.to_json().values() if isinstance(part, dict)]
        for name, settings in PRESETS.items()
    }
    assert {name for name, found in versions.items() if max(found) > 1} == {"release", "chameleon", "dcoc"}
    with pytest.raises(SpecError, match="version"):
        read_tuner({"preset": "dcoc", "explorer": {"version": 1}})


def test_only_the_default_starts_warm():
    assert read_tuner({}) == PRESETS["anole"]
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
    settings = read_tuner({"preset": "random", "explorer": {"name": "annealing", "n_steps": 10}, "sampler": "greedy"})
    assert (settings.explorer, settings.sampler) == (Annealing(n_steps=10), EpsilonGreedy())
    assert settings.surrogate == NoSurrogate()


@given(st.sampled_from(sorted(PRESETS)), st.integers(1, 256), st.integers(0, 64), st.integers(1, 4096))
def test_the_plain_form_reads_back(preset, batch, n_confirm, n_chains):
    explorer = {"name": "annealing", "n_chains": n_chains}
    settings = read_tuner({"preset": preset, "batch": batch, "n_confirm": n_confirm, "explorer": explorer})
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
            "preset: unknown preset 'autotwm'; did you mean 'autotvm'? allowed: random, exhaustive,",
        ),
        ({"preset": ["autotvm"]}, "preset: unknown preset ['autotvm']"),
        (
            {"explorer": "anealing"},
            "explorer: unknown explorer 'anealing'; did you mean 'annealing'? allowed: annealing, ",
        ),
        ({"explorer": {"name": "ppoo"}}, "explorer.name: unknown explorer 'ppoo'"),
        ({"explorer": 7}, "explorer: unknown explorer 7"),
        ({"sampler": {"epsilon": 2}}, "sampler.epsilon: is 2, not a number from 0 to 1"),
        ({"surrogate": {"objective": "rank"}}, "surrogate.objective: is 'rank', not one of regression, ranking"),
        ({"surrogate": {"name": "none", "max_depth": 3}}, "surrogate.max_depth: is unknown; allowed: nothing"),
        ({"evaluator": {"repeats": 0}}, "evaluator.repeats: is 0"),
        ({"evaluator": {"step": 3}}, "evaluator.step: is unknown; allowed: number, repeats, max_s"),
        ({"evaluator": {4: 3}}, "evaluator.4: is unknown"),
        ({"batch": 0}, "batch: is 0, not an integer from 1 to 256"),
        ({"batch": None}, "batch: is None, not an integer"),
        ({"warm_start": 1}, "warm_start: is 1, not true or false"),
        ({"surrogate": {"gamma": -0.1}}, "surrogate.gamma: is -0.1, not a number of at least 0"),
        ({"surrogate": {"gamma": float("inf")}}, "surrogate.gamma: is inf, not a number"),
        ({"sampler": {"diversity_ratio": 0.5}}, "sampler.diversity_ratio: is 0.5, not a number of at least 1 or null"),
        ({"preset": "zzz"}, "preset: unknown preset 'zzz'; allowed: random, "),
        ({"n_confirm": -1}, "n_confirm: is -1"),
        (
            {"explorers": "random"},
            "explorers: unknown setting 'explorers'; did you mean 'explorer'? allowed: preset, explorer,",
        ),
        ({"trials": 64}, "trials: unknown setting 'trials'"),
    ],
)
def test_errors_name_the_path_the_value_and_the_allowed_values(plain, message):
    with pytest.raises(SpecError) as caught:
        read_tuner({"preset": "autotvm", **plain})
    assert f"tuning.{message}" in str(caught.value)


def test_errors_contain_the_given_path():
    with pytest.raises(SpecError, match=r"builds\[1\].preset"):
        read_tuner({"preset": "x"}, "builds[1]")


def test_reading_presets_is_cheap():
    """The Snakefile reads presets in every process."""
    heavy = ["xgboost", "scipy", "sklearn", "torch", "tvm", "pandas"]
    code = (
        f"import sys, anole.search.presets, anole.search.loop; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


MODULE = """
from dataclasses import dataclass
from typing import Annotated, ClassVar

from anole.search.settings import Range


@dataclass(frozen=True)
class Part:
    name: ClassVar[str] = "mine"
    steps: Annotated[int, Range(1, 9)] = 3

    def start(self, space):
        return self


@dataclass(frozen=True)
class Shadow(Part):
    name: ClassVar[str] = "annealing"


def function():
    pass
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that installs a package with the given entry-point lines of each group."""

    def install(**groups: str) -> None:
        (tmp_path / "a_part_from_outside.py").write_text(MODULE)
        info = tmp_path / "outside-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
        sections = (f"[anole.{role}s]\n{line}\n" for role, line in groups.items())
        (info / "entry_points.txt").write_text("\n".join(sections))
        monkeypatch.syspath_prepend(tmp_path)

    return install


ROLES = ("explorer", "sampler", "surrogate", "evaluator")


@pytest.mark.parametrize("role", ROLES)
def test_an_external_part_works_like_a_built_in_one(install, role):
    install(**{role: "mine = a_part_from_outside:Part"})
    settings = read_tuner({"preset": "random", role: {"name": "mine", "steps": 5}})
    part = getattr(settings, role)
    assert (type(part).__name__, part.steps) == ("Part", 5)
    assert settings.to_json()[role] == {"name": "mine", "steps": 5}
    assert read_tuner(settings.to_json()) == settings
    with pytest.raises(SpecError, match=rf"tuning.{role}.steps: is 10, not an integer from 1 to 9"):
        read_tuner({role: {"name": "mine", "steps": 10}})


def test_an_unknown_name_lists_external_parts(install):
    install(explorer="mine = a_part_from_outside:Part")
    with pytest.raises(SpecError, match=r"tuning.explorer: unknown explorer 'yours'.*random, mine"):
        read_tuner({"explorer": "yours"})
    with pytest.raises(SpecError, match="unknown sampler 'mine'"):
        read_tuner({"sampler": "mine"})


def test_built_in_names_cannot_be_overridden(install):
    install(explorer="annealing = a_part_from_outside:Shadow")
    assert type(read_tuner({"preset": "random", "explorer": "annealing"}).explorer) is Annealing


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere_at_all:Part", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("a_part_from_outside:Lost", "cannot be imported: AttributeError"),
        ("a_part_from_outside:function", "is not a dataclass of settings"),
        ("a_part_from_outside:Shadow", "has the `name` 'annealing'; it must equal the entry point's name"),
    ],
)
def test_errors_of_a_package_are_reported(install, place, message):
    install(explorer=f"mine = {place}")
    with pytest.raises(SpecError) as caught:
        read_tuner({"explorer": {"name": "mine"}})
    assert str(caught.value).startswith(
        f"models.yaml: tuning.explorer.name: explorer 'mine', which is {place}, {message}"
    )
