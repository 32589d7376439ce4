"""The life of a project: it is tuned, built, shown and merged; later only jobs affected by a change run again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from anole.documents.build import read_build
from anole.documents.receipt import read_receipts

from .conftest import Project, write_onnx

pytestmark = pytest.mark.workflow

SHARED, OF_TINY, OF_CHAIN = (f"conv2d {channels} k3x3 s1 8x8" for channels in ("3->16", "16->16", "16->32"))
CHAIN, MORE = "chain-cpu-random", "more-cpu-random"
BOTH = [CHAIN, MORE]
MERGE = "merge/db/tuning.sqlite"


@pytest.fixture(scope="module")
def built(tuned_two: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A project with a built ONNX file whose layers were all tuned before."""
    project = tuned_two[0].copy(tmp_path_factory.mktemp("built"))
    write_onnx(project.folder / "more.onnx", [16, 16])
    write_models(project, more=0)
    outcome = project.complete()
    return project, outcome


def write_models(project: Project, **candidates: int) -> None:
    """Write models.yaml with one build for each model, and its number of candidates to refine."""
    builds = [{"model": name, "target": "cpu", "refine": refine} for name, refine in candidates.items()]
    project.write({name: {"source": f"onnx:{name}.onnx"} for name in candidates}, builds=builds)


@pytest.fixture
def project(built: Any, tmp_path: Path) -> Project:
    return built[0].copy(tmp_path)


@pytest.fixture(scope="module")
def built_both(built: Any, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project after refining its build and adding another tuned model."""
    project = built[0].copy(tmp_path_factory.mktemp("both"))
    write_models(project, chain=0, more=2)
    outcome = project.snakemake()
    assert outcome.jobs == {"refine": [MORE], "compile": BOTH, "evaluate": BOTH, "merge": [""]}, outcome.output
    return project


@pytest.fixture
def both(built_both: Project, tmp_path: Path) -> Project:
    return built_both.copy(tmp_path)


def test_a_layer_of_two_models_is_tuned_once(tuned_two: Any) -> None:
    project, outcome = tuned_two
    assert outcome.jobs["extract"] == ["chain-cpu", "tiny-cpu"]
    assert project.tuned_labels(outcome) == sorted([SHARED, OF_TINY, OF_CHAIN])
    assert all(len(content.trials) == 2 for content in project.shards().values())


def test_tuned_models_are_compiled_evaluated_and_merged(built: Any) -> None:
    project, outcome = built
    assert outcome.jobs == {"extract": ["more-cpu"], "compile": [MORE], "evaluate": [MORE], "merge": [""]}
    ((model, reference, latency_s, error),) = project.query(
        "select model, reference, latency_s, relative_error from model_latency"
    )
    assert (model, reference) == ("more", "onnxruntime") and latency_s > 0 and error < 1e-4
    assert project.query("select count(*) from trial") == [(6,)]


@pytest.mark.guard
def test_builds_are_refined_between_tuning_and_compiling(built_both: Project) -> None:
    receipts = read_receipts([built_both.folder / f"work/refined/{MORE}.json"])
    tasks = read_build(built_both.folder / f"builds/{MORE}").tasks
    assert set(receipts) == {task.key for task in tasks} and len(receipts) == 2
    for task in tasks:
        rivals = [(rival.config, rival.latency_s) for rival in receipts[task.key].rivals]
        assert [(each.config, each.latency_alone_s) for each in task.refined] == rivals[:2]
        assert all(each.latency_s > 0 for each in task.refined)
        (chosen,) = [each for each in task.refined if each.chosen]
        assert (task.config, task.matched) == (chosen.config, "tuned")


def test_output_names_networks_and_layers(built: Any, tuned_two: Any) -> None:
    layers = re.findall(
        r"^tune +(conv2d .*?)  +[0-9.,]+ GFLOP/s in 2 trials +[0-9.]+ s$", tuned_two[1].output, re.MULTILINE
    )
    assert sorted(layers) == tuned_two[0].tuned_labels(tuned_two[1])
    output = built[1].output
    stages = re.findall(r"^(\w+)  +([^ ]+(?: on cpu)?)  +\S.* [0-9.]+ s$", output, re.MULTILINE)
    assert stages == [("extract", "more on cpu"), ("compile", MORE), ("evaluate", MORE), ("merge", "db/tuning.sqlite")]
    rows = re.findall(r"^builds/(\S+) +float32 +[0-9.]+ +[0-9.]+ \([0-9.]+x\) +\S+$", output, re.MULTILINE)
    assert (rows, output.count("anole report")) == ([MORE], 1)
    assert len(output.splitlines()) <= 20 and not re.search(r"\x1b|[0-9a-f]{64}", output)


def test_a_finished_project_has_nothing_to_do(project: Project) -> None:
    assert project.plan().steps == ()
    text = (project.folder / "models.yaml").read_text()
    (project.folder / "models.yaml").write_text(f"# for the record\n{text}\n# the end\n")
    outcome = project.snakemake()
    assert (outcome.code, outcome.jobs) == (0, {})
    assert "\nNothing to be done" in outcome.output and f"\nbuilds/{MORE} " in outcome.output


def lock(build: str) -> Callable[[Project], object]:
    return lambda project: project.anole("lock", build)


def edit(old: str, new: str) -> Callable[[Project], object]:
    return lambda project: project.edit("models.yaml", old, new)


def rebuild(build: str) -> list[str]:
    """Return the jobs of compiling a build again."""
    return [f"compile/{build}", f"evaluate/{build}"]


@pytest.mark.guard
@pytest.mark.parametrize(
    ("change", "jobs", "planned"),
    [
        (edit("refine: 2", "refine: 3"), [f"refine/{MORE}", *rebuild(MORE), "merge"], []),
        (edit("refine: 2", "refine: 0"), [*rebuild(MORE), "merge"], []),
        (
            edit("threads: 1", "threads: 1\n    mcpu: x86-64-v2"),
            # Refining is known only after extraction.
            ["extract/chain-cpu", "extract/more-cpu", *rebuild(CHAIN), *rebuild(MORE), "merge"],
            ["extract/chain for cpu", "extract/more for cpu", *rebuild(CHAIN), f"refine/{MORE}", *rebuild(MORE), MERGE],
        ),
        (lock(MORE), [*rebuild(MORE), "merge"], [*rebuild(MORE), MERGE]),
        (lock(CHAIN), [*rebuild(CHAIN), "merge"], [*rebuild(CHAIN), MERGE]),
        (lambda project: write_models(project, more=2), ["merge"], []),
        (lambda project: (project.folder / "db/tuning.sqlite").unlink(), ["merge"], [MERGE]),
    ],
    ids=["more candidates", "none", "a target", "a lock of refined", "a lock", "a model less", "no database"],
)
def test_a_change_runs_only_affected_jobs(both: Project, change: Any, jobs: list[str], planned: list[str]) -> None:
    """`anole plan` compares files, not parameters, so it plans only some of the jobs."""
    change(both)
    assert both.planned() == sorted(jobs)
    assert [f"{step.stage}/{step.subject}" for step in both.plan().steps] == planned


def test_only_changed_layers_are_tuned_again(two: Project) -> None:
    two.edit("nets.py", "nn.Conv2d(16, 16, 3, padding=1)", "nn.Conv2d(16, 24, 3, padding=1)")
    write_onnx(two.folder / "chain.onnx", [16, 40])
    outcome = two.snakemake("tuned")
    assert (outcome.code, outcome.jobs["extract"]) == (0, ["chain-cpu", "tiny-cpu"])
    assert two.tuned_labels(outcome) == ["conv2d 16->24 k3x3 s1 8x8", "conv2d 16->40 k3x3 s1 8x8"]


@pytest.mark.guard
def test_more_trials_measure_only_the_difference_while_snakemake_is_idle(two: Project) -> None:
    before = {path: path.read_bytes() for path in two.shards()}
    two.edit("models.yaml", "trials: 2", "trials: 3")
    outcome = two.snakemake("tuned", "--verbose")
    assert (outcome.code, list(outcome.jobs), len(outcome.jobs["tune"])) == (0, ["tune"], 3)
    assert all(path.read_bytes().startswith(content) for path, content in before.items())
    assert [len(content.trials) for content in two.shards().values()] == [3] * 3
    # One pass for each started or finished job; a rate limit would add one for each second and finished job.
    assert 2 <= outcome.output.count("Resources before job selection") <= 6, outcome.output


@pytest.mark.guard
def test_tasks_with_a_shared_budget_are_tuned_once_in_one_job(two: Project) -> None:
    plain = yaml.safe_load((two.folder / "models.yaml").read_text())
    del plain["tuning"]["trials"]
    two.write(plain["models"], tuning=plain["tuning"] | {"total_trials": 5, "batch": 2}, builds=plain["builds"][:1])
    outcome = two.snakemake("tuned")
    assert (outcome.code, list(outcome.jobs), len(outcome.jobs["tune_together"])) == (0, ["tune_together"], 1)
    shared = [content for content in two.shards().values() if content.run.settings["batch"] == 2]
    assert sum(len(content.trials) for content in shared) == 5 and len(shared) == 2
    assert two.planned("tuned") == []
    assert {task.spent.partition(" ")[2] for task in two.plan().tasks} == {"of 5 shared"}
    before = {path: path.read_bytes() for path in two.shards()}
    tuning = plain["tuning"] | {"total_seconds": 1, "batch": 2}
    two.write(plain["models"], tuning=tuning, builds=plain["builds"][:1])
    assert list(two.snakemake("tuned").jobs) == ["tune_together"]
    assert all(path.read_bytes().startswith(content) for path, content in before.items())


@pytest.mark.guard
def test_commands_give_the_same_results_as_rules(both: Project) -> None:
    (both.folder / "db/tuning.sqlite").unlink()
    before = read_build(both.folder / f"builds/{MORE}").tasks
    for command in (["extract", "more", "--target", "cpu"], ["compile", MORE], ["merge"]):
        assert both.anole(*command).returncode == 0
    assert read_build(both.folder / f"builds/{MORE}").tasks == before
    assert both.query("select distinct matched from build_task") == [("tuned",)]


def prefer_other_configs(project: Project) -> None:
    """Write receipts with the other one of the two measured configs, as better records would."""
    tried = {content.task.key: [trial.config for trial in content.trials] for content in project.shards().values()}
    for path in (project.folder / "work/tuned").rglob("*.json"):
        plain = json.loads(path.read_text())
        del plain["crc"]
        (plain["config"],) = [config for config in tried[plain["task_key"]] if config != plain["config"]]
        path.write_text(json.dumps(plain))


@pytest.mark.slow
def test_new_records_change_only_unlocked_builds(both: Project) -> None:
    chain = both.folder / f"builds/{CHAIN}"
    before = read_build(chain)
    assert both.anole("lock", CHAIN).stdout == f"{CHAIN}: locked 2 tasks\n"
    prefer_other_configs(both)
    outcome = both.snakemake(f"builds/{CHAIN}")
    assert (outcome.code, outcome.jobs) == (0, {"compile": [CHAIN]}), outcome.output
    locked = read_build(chain)
    assert locked.sha256 == before.sha256
    assert [each.config for each in locked.tasks] == [each.config for each in before.tasks]
    assert all(task.locked and task.matched == "tuned" for task in locked.tasks)
    assert both.planned(f"builds/{CHAIN}") == []

    assert both.anole("lock", "--remove", CHAIN).stdout == f"unlocked: {CHAIN}\n"
    assert not (both.folder / "anole.lock.json").exists()
    outcome = both.snakemake(f"builds/{CHAIN}")
    assert (outcome.code, outcome.jobs) == (0, {"compile": [CHAIN]}), outcome.output
    unlocked = read_build(chain)
    assert all(now.config != then.config for now, then in zip(unlocked.tasks, before.tasks, strict=True))
    assert not any(task.locked for task in unlocked.tasks) and unlocked.lock is None


@pytest.mark.slow
def test_a_clone_with_a_lock_file_compiles_without_tuning(
    both: Project, empty_project: Callable[[str], Project]
) -> None:
    """Nothing is tuned or recorded, and the library is byte-identical."""
    both.anole("lock", CHAIN)
    clone = empty_project("clone")
    clone.write_chain(16, 32)
    shutil.copy(both.folder / "anole.lock.json", clone.folder)
    outcome = clone.complete()
    assert set(outcome.jobs) == {"extract", "compile", "evaluate", "merge"}
    own, first = (read_build(each.folder / f"builds/{CHAIN}") for each in (clone, both))
    assert own.sha256 == first.sha256
    assert "2 tasks: 2 locked." in clone.anole("plan").stdout


def test_killed_tuning_resumes(one: Project) -> None:
    """Killing other processes is tested in `tests/faults`."""
    (shard,) = one.shards()
    one.edit("models.yaml", "trials: 2", "trials: 12")
    process, ends_s = one.start("tuned"), time.monotonic() + 120
    while len(shard.read_bytes().splitlines()) <= 6:
        assert process.poll() is None and time.monotonic() < ends_s, process.communicate()[0]
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    acknowledged = b"".join(line for line in shard.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))
    process.wait(timeout=60)
    one.complete("tuned")
    assert shard.read_bytes().startswith(acknowledged)
    trials = one.shards()[shard].trials
    assert [trial.number for trial in trials] == list(range(12))
    assert len({str(trial.config) for trial in trials}) == 12
