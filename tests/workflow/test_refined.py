"""A build whose candidates are tried within its network, and what is done again after a change."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from anole.documents.build import read_build
from anole.documents.receipt import read_receipts

pytestmark = [pytest.mark.workflow, pytest.mark.guard]

BUILD = "chain-cpu-random"
FOLDER = f"builds/{BUILD}"


@pytest.fixture(scope="module")
def built(tuned_two: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An ONNX file whose two layers are tuned already, refined and compiled."""
    project = tuned_two[0].copy(tmp_path_factory.mktemp("refined"))
    project.edit("models.yaml", "trials: 2", "trials: 2\n  refine: 2")
    outcome = project.snakemake(FOLDER)
    assert outcome.code == 0, outcome.output
    return project, outcome


@pytest.fixture
def project(built: Any, tmp_path: Any) -> Any:
    return built[0].copy(tmp_path)


def planned(project: Any) -> list[str]:
    """Returns the rules whose jobs would run for the build."""
    outcome = project.snakemake("--dry-run", "--quiet", "host", "--", FOLDER)
    assert (outcome.code, outcome.jobs) == (0, {}), outcome.output
    return sorted(set(re.findall(r"^rule (\w+):", outcome.output, re.MULTILINE)))


def test_candidates_are_tried_between_tuning_and_compiling(built: Any) -> None:
    project, outcome = built
    assert outcome.jobs == {"refine": [BUILD], "compile": [BUILD]}
    receipts = read_receipts([project.folder / f"work/refined/{BUILD}.json"])
    build = read_build(project.folder / FOLDER)
    assert set(receipts) == {task.key for task in build.tasks} and len(receipts) == 2
    for task in build.tasks:
        rivals = [(rival.config, rival.latency_s) for rival in receipts[task.key].rivals]
        assert [(each.config, each.latency_alone_s) for each in task.refined] == rivals[:2]
        assert all(each.latency_s > 0 for each in task.refined)
        (chosen,) = [each for each in task.refined if each.chosen]
        assert (task.config, task.matched) == (chosen.config, "tuned")


def test_then_nothing_is_left_to_do(project: Any) -> None:
    assert planned(project) == []
    steps = json.loads(project.anole("plan", "--json").stdout)["steps"]
    assert [step["stage"] for step in steps if step["subject"] == BUILD] == ["evaluate"]


@pytest.mark.parametrize(("refine", "again"), [(3, ["compile", "refine"]), (0, ["compile"])])
def test_what_another_number_of_candidates_does_again(project: Any, refine: int, again: list[str]) -> None:
    project.edit("models.yaml", "refine: 2", f"refine: {refine}")
    assert planned(project) == again


def test_stages_by_hand_know_whether_a_build_is_refined(project: Any) -> None:
    before = read_build(project.folder / FOLDER).tasks
    assert project.anole("compile", BUILD).returncode == 0
    assert read_build(project.folder / FOLDER).tasks == before
    project.edit("models.yaml", "refine: 2", "refine: 0")
    done = project.anole("refine", BUILD)
    says = f"anole: {BUILD}: is not set to be refined; `refine` sets how many candidates of each task are tried\n"
    assert (done.returncode, done.stderr) == (2, says)
