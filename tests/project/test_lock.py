"""Builds are locked to the configs they were compiled with; errors are reported and nothing is written then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from anole.__main__ import main
from anole.codec import encode
from anole.config.reading import load_spec
from anole.documents.build import digests, read_build, write_build
from anole.documents.lockfile import read_lockfile
from anole.project.hardware import describe_target

from ..record_project import CONV, DENSE, Project, run_of

MODELS = """
models:
  resnet18: {source: "torchvision:resnet18", inputs: {x: [1, 3, 224, 224]}}
  resnet34: {source: "torchvision:resnet34", inputs: {x: [1, 3, 224, 224]}}
targets:
  cpu: {kind: cpu, threads: 1}
builds:
  - {model: resnet18, target: cpu, name: resnet18-cpu}
  - {model: resnet34, target: cpu, name: resnet34-cpu}
  - {model: resnet34, target: cpu, name: new}
"""
DEFAULT = {"tile_f": [1, 1, 1, 4]}
NAMES = ("resnet18", "resnet34")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Two builds with a tuned and an untuned task each, and a build that is not compiled."""
    (tmp_path / "models.yaml").write_text(MODELS)
    made = Project(tmp_path)
    description = describe_target(load_spec(tmp_path / "models.yaml").targets["cpu"])
    for name in NAMES:
        folder = made.compile(name, [(CONV, 4, run_of(CONV)), (DENSE, 1, None)]).parent
        build = read_build(folder)
        (folder / "build.json").unlink()
        (folder / "model.so").write_text(name)
        tasks = tuple(replace(task, config=task.config or DEFAULT) for task in build.tasks)
        write_build(folder, replace(build, tasks=tasks, target_description=description, sha256=digests(folder)))
    return made


@pytest.fixture
def lock(project: Project) -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(
        main, ["lock", *arguments, "--spec", str(project.folder / "models.yaml")]
    )


def change(project: Project, name: str, **changes: Any) -> None:
    folder = project.folder / "builds" / name
    write_build(folder, replace(read_build(folder), **changes))


def read_lock(project: Project) -> dict[str, Any]:
    return encode(read_lockfile(project.folder / "anole.lock.json").builds)


def test_all_compiled_builds_are_locked_with_their_configs(project: Project, lock: Callable[..., Result]) -> None:
    result = lock()
    assert (result.exit_code, result.stdout) == (
        0,
        "resnet18-cpu: locked 2 tasks, 1 of them untuned\nresnet34-cpu: locked 2 tasks, 1 of them untuned\n",
    )
    build = read_build(project.folder / "builds/resnet18-cpu")
    assert read_lock(project)["resnet18-cpu"] == {
        "target": build.target_description,
        "tasks": {
            CONV.key: {
                "label": CONV.label,
                "config": {"tile_f": [1, 1, 1, 16]},
                "latency_s": 2e-3,
                "run_key": run_of(CONV).key,
            },
            DENSE.key: {"label": DENSE.label, "config": DEFAULT, "latency_s": None, "run_key": None},
        },
    }
    path = project.folder / "anole.lock.json"
    before = path.stat().st_mtime_ns
    assert lock().exit_code == 0 and path.stat().st_mtime_ns == before


def test_only_named_builds_are_locked_or_unlocked(project: Project, lock: Callable[..., Result]) -> None:
    assert lock().exit_code == 0
    before = read_lock(project)
    for name in ("resnet18-cpu", "resnet34-cpu"):
        task, *others = read_build(project.folder / "builds" / name).tasks
        change(project, name, tasks=(replace(task, config={"tile_f": [2, 1, 1, 8]}), *others))
    assert lock("resnet34-cpu").exit_code == 0
    after = read_lock(project)
    assert after["resnet18-cpu"] == before["resnet18-cpu"]
    assert after["resnet34-cpu"]["tasks"][CONV.key]["config"] == {"tile_f": [2, 1, 1, 8]}
    text = (project.folder / "models.yaml").read_text().replace("name: resnet18-cpu", "name: other")
    (project.folder / "models.yaml").write_text(text)
    assert lock("--remove", "resnet18-cpu").stdout == "unlocked: resnet18-cpu\n"
    assert read_lock(project) == {"resnet34-cpu": after["resnet34-cpu"]}
    assert lock("--remove", "resnet34-cpu").exit_code == 0
    assert not (project.folder / "anole.lock.json").exists()


def test_unscheduled_configs_are_locked_too(project: Project, lock: Callable[..., Result]) -> None:
    task, *others = read_build(project.folder / "builds/resnet18-cpu").tasks
    change(project, "resnet18-cpu", tasks=(replace(task, config=None, unscheduled=task.config), *others))
    assert lock("resnet18-cpu").exit_code == 0
    assert read_lock(project)["resnet18-cpu"]["tasks"][CONV.key]["config"] == task.config


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["resnet18-cpu", "new"], "builds/new/build.json: there is no such file; `snakemake --forcerun compile`"),
        (
            ["resnet81-cpu"],
            "builds: found 'resnet81-cpu', which is not one of the builds; did you mean 'resnet18-cpu'?",
        ),
        (["--remove", "new"], "anole.lock.json: builds: found 'new', which is not one of the locked builds"),
    ],
)
def test_a_missing_build_is_reported(lock: Callable[..., Result], names: list[str], message: str) -> None:
    result = lock(*names)
    assert result.exit_code == 2 and result.stdout == ""
    assert message in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"entry": {"source": "torchvision:resnet50"}}, ": its model differs from"),
        ({"target_description": {"kind": "cpu"}}, ": its target differs from"),
        ({"sha256": {"model.so": "0" * 64}}, "model.so: is not the file that build.json describes"),
        ("build.json", "is not JSON"),
        ("config", f"{CONV.label}: its config was not recorded; `snakemake --forcerun compile`"),
        ("anole.lock.json", "anole.lock.json: is not JSON"),
    ],
)
def test_nothing_is_written_for_a_damaged_build(
    project: Project, lock: Callable[..., Result], damage: Any, message: str
) -> None:
    path = project.folder / "anole.lock.json"
    if damage == "anole.lock.json":
        path.write_text("<<<<<<< HEAD")
    elif damage == "build.json":
        (project.folder / "builds/resnet34-cpu/build.json").write_text("{")
    elif damage == "config":
        task, *others = read_build(project.folder / "builds/resnet34-cpu").tasks
        change(project, "resnet34-cpu", tasks=(replace(task, config=None), *others))
    else:
        change(project, "resnet34-cpu", **damage)
    before = path.read_text() if path.exists() else None
    result = lock()
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert (path.read_text() if path.exists() else None) == before


def test_wrong_usage_is_reported(project: Project, lock: Callable[..., Result], tmp_path: Path) -> None:
    assert "give the builds to unlock; to unlock all, delete the lock file" in lock("--remove").stderr
    for name in NAMES:
        (project.folder / f"builds/{name}-cpu/build.json").unlink()
    result = lock()
    assert result.exit_code == 2 and "is compiled; `snakemake` compiles them" in result.stderr
