from __future__ import annotations

import json
from pathlib import Path

import pytest

from anole.documents.documents import read_build, read_evaluation, read_manifest, read_task
from anole.errors import StoreError


def edit(path: Path, **change: object) -> Path:
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    return path


@pytest.fixture
def manifest(project) -> Path:
    return project.extract("resnet18", [(project.CONV, 4)])


def test_a_manifest_leads_to_its_tasks(project, manifest: Path) -> None:
    document = read_manifest(manifest)
    assert document.plain == json.loads(manifest.read_text())
    assert read_task(document, project.CONV.key).to_json() == project.CONV.to_json()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": NaN}', "\0"])
def test_what_is_not_an_object_is_refused(manifest: Path, text: str) -> None:
    manifest.write_text(text)
    with pytest.raises(StoreError) as caught:
        read_manifest(manifest)
    assert str(caught.value).startswith(f"{manifest}: ")
    assert "`anole extract` writes it anew" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema": 2}, "newer Anole"),
        ({"schema": None}, "schema is None"),
        ({"model": 3}, "model is 3, not text"),
        ({"inputs": [1, 3]}, "inputs is [1, 3], not an object"),
        ({"tasks": [{"key": "x", "weight": 1, "layers": []}]}, "tasks[0].key is 'x'"),
        (
            {"tasks": [{"key": "a" * 64, "weight": 1.5, "layers": []}]},
            "tasks[0].weight is 1.5, not a whole number",
        ),
    ],
)
def test_a_damaged_manifest_is_named(manifest: Path, change: dict, problem: str) -> None:
    edit(manifest, **change)
    with pytest.raises(StoreError) as caught:
        read_manifest(manifest)
    assert problem in str(caught.value)


def test_a_task_that_is_missing_damaged_or_another_is_named(project, manifest: Path) -> None:
    document = read_manifest(manifest)
    path = project.folder / "work" / "tasks" / f"{project.CONV.key}.json"
    path.write_text(json.dumps(project.DENSE.to_json()))
    with pytest.raises(StoreError, match=f"holds a task with the key {project.DENSE.key}"):
        read_task(document, project.CONV.key)
    path.write_text('{"workload": {"operator": "lstm"}}')
    with pytest.raises(StoreError, match="is not a task"):
        read_task(document, project.CONV.key)
    path.unlink()
    with pytest.raises(StoreError, match=r"is missing; extract the model again \(snakemake -R extract\)"):
        read_task(document, project.CONV.key)


def test_a_damaged_build_or_evaluation_is_named(project) -> None:
    build = project.compile("resnet18", [(project.CONV, 1, None)])
    evaluation = project.evaluate("resnet18-cpu")
    assert read_build(build).plain["name"] == read_evaluation(evaluation).plain["build"] == "resnet18-cpu"
    with pytest.raises(StoreError, match=r"coverage\.share is missing"):
        read_build(edit(build, coverage={"tuned_flop": 0, "total_flop": 1}))
    with pytest.raises(StoreError, match="created_at is 'now'"):
        read_build(edit(build, created_at="now"))
    with pytest.raises(StoreError, match=r"latencies\[0\]\.reference is missing"):
        read_evaluation(edit(evaluation, latencies=[{}]))
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        read_evaluation(evaluation.with_name("gone.json"))


@pytest.mark.parametrize(
    ("tried", "problem"),
    [
        ({"config": {}, "latency_alone_s": 1.0}, r"tasks\[0\]\.refined\[0\]\.chosen is missing"),
        ("all", r"tasks\[0\]\.refined\[0\] is 'all', not an object"),
    ],
)
def test_a_damaged_refinement_is_named(project, tried: object, problem: str) -> None:
    build = project.compile("resnet18", [(project.CONV, 1, None)])
    tasks = [{**task, "refined": [tried]} for task in read_build(build).plain["tasks"]]
    with pytest.raises(StoreError, match=problem):
        read_build(edit(build, tasks=tasks))


def test_a_build_of_an_older_version_was_not_refined(project) -> None:
    build = project.compile("resnet18", [(project.CONV, 1, None)])
    tasks = [dict(task) for task in read_build(build).plain["tasks"]]
    for task in tasks:
        del task["refined"]
    assert read_build(edit(build, tasks=tasks)).plain["tasks"] == tasks
