"""Inputs, parameters and resources of rules, without Snakemake."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anole.documents import layout
from anole.documents.described import write_described
from anole.documents.manifest import ListedTask
from anole.keys import is_key
from anole.project.hardware import describe_this_machine, hardware_request
from anole.project.pipeline import Pipeline
from anole.project.rule_inputs import RuleInputs, Wildcards

from .manifests import leave_manifest

MODELS = """
models: {net: {source: "torchvision:alexnet", inputs: {x: [1, 3, 64, 64]}}}
targets: {here: {kind: cpu, threads: 1}, amd: {kind: cpu, threads: 1, nodes: {partition: amd, slurm_extra: "-v"}}}
tuning: {preset: random, trials: 4}
builds:
  - {model: net, target: here}
  - {model: net, target: here, seed: 1, name: seeded}
  - {model: net, target: here, refine: 2, name: refined}
  - {model: net, target: here, total_trials: 9, name: shared}
  - {model: net, target: here, total_seconds: 9, name: timed}
  - {model: net, target: amd}
"""
TASKS = ["a" * 64, "b" * 64]


class Waiting(Exception):
    """Raised if another job must run first."""


class Project:
    """A project whose model is extracted for the local target; no node has described the other target."""

    def __init__(self, **workflow: Any) -> None:
        Path("models.yaml").write_text(MODELS)
        self.loads = 0
        state = {"dryrun": False, "cores": 8, "non_local_exec": False, "remote_exec": False, **workflow}
        self.answers = RuleInputs(self.load, SimpleNamespace(**state), self.wait_for_target, self.wait_for_model, {})
        self.pipeline = self.answers.pipeline
        leave_manifest(self.pipeline, "net", "here", [ListedTask(key, "dense", 1, 1, ("layer",)) for key in TASKS])

    def load(self) -> Pipeline:
        self.loads += 1
        return Pipeline.load("models.yaml")

    def wait_for_target(self, target: str) -> None:
        if not layout.described_path(target).exists():
            raise Waiting(target)

    def wait_for_model(self, model: str, target: str) -> None:
        if not layout.manifest_path(model, target).exists():
            raise Waiting(model)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def job(**wildcards: str) -> Wildcards:
    return SimpleNamespace(**wildcards)  # type: ignore[return-value]


def content(argument: str) -> Any:
    return json.loads(Path(argument.removeprefix("@")).read_text())


def test_a_run_determines_its_tuner_and_target() -> None:
    project = Project()
    seeded = project.pipeline.spec.builds["seeded"]
    tune = job(task="k", run=project.pipeline.run(seeded, "k").key)
    answers = project.answers
    assert answers.tuner_of(tune) == (project.pipeline.tuners["seeded"], 1) and answers.tuner_seed(tune) == 1
    assert content(answers.tuner_settings(tune)) == project.pipeline.tuners["seeded"].to_json()
    assert answers.target_of(tune) == "here"
    with pytest.raises(KeyError):
        answers.tuner_of(job(task="k", run="no such run"))


def test_a_run_has_the_target_whose_manifest_lists_its_task() -> None:
    project = Project()
    Path("models.yaml").write_text(MODELS.replace('nodes: {partition: amd, slurm_extra: "-v"}', "space: open"))
    project.answers.pipeline = pipeline = project.load()
    for target, key in (("here", TASKS[0]), ("amd", TASKS[1])):
        leave_manifest(pipeline, "net", target, [ListedTask(key, "dense", 1, 1, ("layer",))])
        (build,) = (each for each in pipeline.spec.tuned if each.name == f"net-{target}-random")
        assert project.answers.target_of(job(task=key, run=pipeline.run(build, key).key)) == target


def test_the_overrides_of_models_and_targets_reach_an_evaluation() -> None:
    project, overrides = Project(), {"targets": {"here": {"precision": "int8"}}, "tuning": {"trials": 0}}
    project.answers._overrides = overrides
    options = project.answers.spec_options(job(build="net-here-random")).split()
    assert content(options[options.index("--overrides") + 1]) == {"targets": overrides["targets"]}


def test_a_shared_budget_determines_its_tuner() -> None:
    project = Project()
    for name, seconds in (("shared", ""), ("timed", "--seconds 9")):
        key = project.pipeline.shared_key(project.pipeline.spec.builds[name], dict.fromkeys(TASKS, 1))
        together = job(model="net", target="here", key=key)
        assert project.answers.tuner_of(together) == (project.pipeline.tuners[name], 0)
        assert project.answers.seconds(together) == seconds
    with pytest.raises(KeyError):
        project.answers.tuner_of(job(model="net", target="here", key="another"))


def test_receipts_wait_for_their_model_and_refining_replaces_them() -> None:
    project = Project()
    answers, build = project.answers, job(build="net-here-random")
    manifest = layout.manifest_path("net", "here")
    assert (answers.manifest(build), answers.build_files(build)) == (manifest, [])
    receipts = answers.receipts(build)
    assert len(receipts) == 2 and answers.ingredients(build) == receipts and answers.candidates(build) == 0
    refined = job(build="refined")
    assert answers.receipts_of(project.pipeline.spec.builds["refined"])(build) == receipts
    assert (answers.ingredients(refined), answers.candidates(refined)) == ("work/refined/refined.json", 2)
    manifest.unlink()
    with pytest.raises(Waiting, match="net"):
        answers.receipts(job(build="seeded"))


def test_a_cluster_target_is_available_after_a_node_described_it() -> None:
    project = Project()
    answers, extract = project.answers, job(model="net", target="amd")
    for question in (answers.description_file, answers.target_description, answers.versions):
        with pytest.raises(Waiting, match="amd"):
            question(extract)
    described = describe_this_machine(hardware_request(project.pipeline.spec.targets["amd"]))
    assert content(answers.requested_hardware(extract)) == hardware_request(project.pipeline.spec.targets["amd"])
    write_described(layout.described_path("amd"), described)
    assert answers.description_file(extract) == "work/targets/amd.json"
    assert content(answers.target_description(extract)) == described.description
    assert project.loads == 2, "it is read again once"
    assert answers.description_file(job(model="net", target="here")) == []


def test_a_broken_project_exits_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    project = Project()
    layout.manifest_path("net", "here").write_text("{")
    with pytest.raises(SystemExit, match="2"):
        project.answers.receipts(job(build="seeded"))
    assert capsys.readouterr().err.startswith("anole: work/models/net/here.json: is not JSON: ")


@pytest.mark.parametrize("dryrun", [False, True])
def test_an_argument_is_a_file_named_by_its_content(dryrun: bool) -> None:
    project = Project(dryrun=dryrun)
    entry = project.pipeline.spec.models["net"].to_json()
    argument = project.answers.own_entry(job(model="net"))
    path = Path(argument.removeprefix("@"))
    assert path == layout.argument_path(path.stem) and is_key(path.stem)
    assert path.exists() is not dryrun
    assert dryrun or content(argument) == entry
    order = project.answers.build_order(job(build="seeded"))
    assert dryrun or content(order)["seed"] == 1


def test_measuring_jobs_get_a_cluster_node_exclusively() -> None:
    here, cluster = Project().answers, Project(non_local_exec=True).answers
    build = job(build="net-amd-random")
    assert (here.tuning_group(build), cluster.tuning_group(build)) == (None, "tune_amd")
    local, remote = ({name: ask(build) for name, ask in each.node().items()} for each in (here, cluster))
    assert local == {"slurm_partition": "amd", "slurm_extra": "-v"}
    assert remote == {"slurm_partition": "amd", "slurm_extra": "-v --exclusive"}
    mine = job(build="seeded")
    assert {name: ask(mine) for name, ask in here.node().items()} == {"slurm_partition": None, "slurm_extra": None}
    assert [here.need(name)(mine) for name in ("threads", "device", "gpu", "measure")] == [8, 1, 0, "{}"]
    assert (cluster.need("threads")(mine), here.required_option(mine)) == (1, "--required")
