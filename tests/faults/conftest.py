"""Fixtures of the fault tests: the projects that faults are injected into, the number of faults, and their results."""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..workflow.conftest import TUNING, Project, write_onnx
from .ledger import AllFigures, Figures
from .processes import ROOT
from .small_disk import SmallDisk, why_no_small_disk
from .system_calls import Driver

FAULTS = 12
"""Minimum number of commands that the default tests kill."""

RECORDED = 4
"""Number of trials of the prepared projects."""

TUNER = json.dumps({name: value for name, value in TUNING.items() if name != "trials"})
MODEL = {"cpu": "small", "npu": "chain"}
BUILD = {target: f"{model}-{target}-random" for target, model in MODEL.items()}
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "2"]
EXTRACT = {target: ["extract", model, "--target", target] for target, model in MODEL.items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults", type=int, default=FAULTS, help="minimum number of commands to kill")
    parser.addoption("--faults-csv", type=Path, help="write the results of all faults to this file")


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Iterator[AllFigures]:
    """The results by stage and fault; written to the file given by ``--faults-csv`` at the end."""
    found: AllFigures = defaultdict(Figures)
    yield found
    path = pytestconfig.getoption("faults_csv", None)
    if path is not None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["stage", "fault", *(field.name for field in fields(Figures))])
            writer.writerows([*key, *astuple(each)] for key, each in sorted(found.items()))


def write_project(folder: Path, trials: int, *targets: str) -> Project:
    """Write a project with a network of one task for each of the targets, by default ``cpu`` and ``npu``."""
    project, wanted = Project(folder), targets or ("cpu", "npu")
    write_onnx(folder / "small.onnx", [16])
    write_onnx(folder / "chain.onnx", [16, 32])
    np.save(folder / "samples.npy", np.random.default_rng(0).standard_normal((2, 1, 3, 8, 8)).astype(np.float32))
    models = {"small": {"source": "onnx:small.onnx"}, "chain": {"source": "onnx:chain.onnx", "samples": "samples.npy"}}
    descriptions = {"cpu": {"kind": "cpu", "threads": 1}, "npu": {"kind": "vta", "geometry": {"block_out": 16}}}
    project.write(
        {MODEL[target]: models[MODEL[target]] for target in wanted},
        targets={target: descriptions[target] for target in wanted},
        tuning={**TUNING, "trials": trials},
        builds=[{"model": MODEL[target], "target": target} for target in wanted],
    )
    return project


def tune_command(project: Path, target: str, trials: int) -> list[str]:
    """Return the arguments for tuning the only task of a target."""
    manifest = json.loads((project / f"work/models/{MODEL[target]}/{target}.json").read_text())
    (task,) = manifest["tasks"]
    return ["tune", f"work/tasks/{task['key']}.json", "--tuner", TUNER, "--trials", str(trials)]


def message_of(output: str) -> str:
    """Return the error message of a command; assert that it is a single line and that there is no traceback."""
    assert "Traceback" not in output, output
    (line,) = {line for line in output.splitlines() if line.startswith("anole: ")} or {None}
    assert line is not None, output
    return line


@pytest.fixture(scope="session")
def built_project(once: Callable[..., Path]) -> Project:
    """A project for the accelerator after all stages, from models.yaml to the database."""
    return Project(once("faults_built", lambda folder: write_project(folder, RECORDED, "npu").complete()))


@pytest.fixture(scope="session")
def tuned_project(once: Callable[..., Path]) -> Project:
    """A project for the processor after tuning."""

    def fill(folder: Path) -> None:
        project = write_project(folder, RECORDED, "cpu")
        for command in (lambda: EXTRACT["cpu"], lambda: tune_command(folder, "cpu", RECORDED)):
            done = project.anole(*command())
            assert done.returncode == 0, done.stderr

    return Project(once("faults_tuned", fill))


@pytest.fixture
def built(built_project: Any, tmp_path: Path) -> Project:
    return built_project.copy(tmp_path / "project")


@pytest.fixture
def tuned_cpu(tuned_project: Any, tmp_path: Path) -> Project:
    return tuned_project.copy(tmp_path / "project")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A process that runs commands with faults at their system calls."""
    with Driver(tmp_path_factory.mktemp("driver")) as running:
        yield running


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if (reason := why_no_small_disk()) is not None:
        pytest.skip(reason)
    folder = tmp_path / "disk"
    folder.mkdir()
    with SmallDisk(folder) as made:
        yield made
