"""Locked builds keep their configs whatever is recorded later, and need no records at all."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from anole.documents.build import Build, digests, read_build

pytestmark = pytest.mark.workflow

CHAIN, TINY = "chain-cpu-random", "tiny-cpu-random"


@pytest.fixture(scope="module")
def built(tuned_two: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An ONNX file and a torch factory that share a layer, compiled; the ONNX file's build is locked then."""
    project = tuned_two[0].copy(tmp_path_factory.mktemp("locked"))
    outcome = project.snakemake(*map(folder, (CHAIN, TINY)))
    assert outcome.code == 0, outcome.output
    assert project.anole("lock", CHAIN).stdout == f"{CHAIN}: locked 2 tasks\n"
    return project


@pytest.fixture
def project(built: Any, tmp_path: Path) -> Any:
    return built.copy(tmp_path)


def folder(build: str) -> str:
    return f"builds/{build}"


def planned(project: Any, *targets: str) -> list[str]:
    """Returns the rules whose jobs would run, with their builds."""
    outcome = project.snakemake("--dry-run", "--quiet", "host", "--", *targets)
    assert (outcome.code, outcome.jobs) == (0, {}), outcome.output
    return sorted(set(re.findall(r"^(?:rule|checkpoint) (\w+):", outcome.output, re.MULTILINE)))


def configs(build: Build) -> dict[str, Any]:
    return {task.key: task.config for task in build.tasks}


def prefer_other_configs(project: Any) -> None:
    """Leaves receipts that name the other one of the two configs that were tried, as better records would."""
    tried = {content.task.key: [trial.config for trial in content.trials] for content in project.shards().values()}
    for path in (project.folder / "work/tuned").rglob("*.json"):
        plain = json.loads(path.read_text())
        del plain["crc"]
        (plain["config"],) = [config for config in tried[plain["task_key"]] if config != plain["config"]]
        path.write_text(json.dumps(plain))


def digests_of_library(project: Any, build: str) -> dict[str, str]:
    found = digests(project.folder / folder(build))
    return {name: digest for name, digest in found.items() if name == "model.so"}


@pytest.mark.slow
def test_only_the_build_whose_entry_changes_is_compiled_again(project: Any) -> None:
    assert planned(project, folder(CHAIN)) == ["compile"]
    assert planned(project, folder(TINY)) == []
    steps = json.loads(project.anole("plan", "--json").stdout)["steps"]
    assert [(step["subject"], step["reason"]) for step in steps if step["stage"] == "compile"] == [
        (CHAIN, "its lock changed")
    ]


@pytest.mark.slow
def test_other_records_change_what_is_not_locked(project: Any) -> None:
    before = {name: read_build(project.folder / folder(name)) for name in (CHAIN, TINY)}
    prefer_other_configs(project)
    outcome = project.snakemake(*map(folder, (CHAIN, TINY)))
    assert (outcome.code, outcome.jobs) == (0, {"compile": [CHAIN, TINY]}), outcome.output
    after = {name: read_build(project.folder / folder(name)) for name in (CHAIN, TINY)}
    assert after[CHAIN].sha256 == before[CHAIN].sha256 == digests_of_library(project, CHAIN)
    assert configs(after[CHAIN]) == configs(before[CHAIN])
    assert all(task.locked and task.matched == "tuned" for task in after[CHAIN].tasks)
    assert all(config != configs(before[TINY])[key] for key, config in configs(after[TINY]).items())
    assert planned(project, *map(folder, (CHAIN, TINY))) == []

    assert project.anole("lock", "--remove", CHAIN).stdout == f"unlocked: {CHAIN}\n"
    assert not (project.folder / "anole.lock.json").exists()
    outcome = project.snakemake(*map(folder, (CHAIN, TINY)))
    assert (outcome.code, outcome.jobs) == (0, {"compile": [CHAIN]}), outcome.output
    unlocked = read_build(project.folder / folder(CHAIN))
    assert all(config != configs(before[CHAIN])[key] for key, config in configs(unlocked).items())
    assert not any(task.locked for task in unlocked.tasks) and unlocked.lock is None


@pytest.mark.slow
def test_a_clone_with_a_lock_file_compiles_at_once(built: Any, empty: Any) -> None:
    """Nothing is tuned or recorded, and the library is the same to the byte."""
    for name in ("models.yaml", "chain.onnx", "nets.py", "anole.lock.json"):
        shutil.copy(built.folder / name, empty.folder / name)
    empty.edit("models.yaml", "- model: tiny\n  target: cpu\n", "")
    outcome = empty.snakemake()
    assert outcome.code == 0, outcome.output
    assert set(outcome.jobs) == {"extract", "compile", "evaluate", "merge"}
    assert read_build(empty.folder / folder(CHAIN)).sha256 == read_build(built.folder / folder(CHAIN)).sha256
    assert "2 tasks: 2 locked." in empty.anole("plan").stdout


@pytest.mark.slow
def test_a_locked_build_is_not_refined(project: Any) -> None:
    project.edit("models.yaml", "trials: 2", "trials: 2\n  refine: 2")
    assert planned(project, folder(CHAIN)) == ["compile"]
    assert planned(project, folder(TINY)) == ["compile", "refine"]
    done = project.anole("refine", CHAIN)
    assert (done.returncode, done.stderr) == (
        2,
        f"anole: {CHAIN}: is locked; `anole lock --remove {CHAIN}` unlocks it, and then it can be refined\n",
    )


@pytest.mark.slow
def test_only_the_tasks_that_a_lock_lacks_are_tuned(project: Any, onnx_writer: Any) -> None:
    onnx_writer(project.folder / "chain.onnx", [16, 40])
    outcome = project.snakemake(folder(CHAIN))
    assert outcome.code == 0 and set(outcome.jobs) == {"extract", "tune", "compile"}, outcome.output
    assert project.tuned_labels(outcome) == ["conv2d 16->40 k3x3 s1 8x8"]
    log = (project.folder / f"logs/compile/{CHAIN}.log").read_text()
    assert "conv2d 16->40 k3x3 s1 8x8 has no config in anole.lock.json: its records decide" in log
    assert [task.locked for task in read_build(project.folder / folder(CHAIN)).tasks] == [True, None]
    behind = json.loads(project.anole("plan", "--json").stdout)["behind"]
    assert [(each["subject"], each["problem"]) for each in behind] == [
        ("conv2d 16->40 k3x3 s1 8x8", "is not locked: its records decide"),
        ("conv2d 16->32 k3x3 s1 8x8", "is locked, but the model has no such task"),
    ]
