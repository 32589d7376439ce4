"""Projects of tiny networks, and functions that run Snakemake on them."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml

from anole.project.pipeline import Pipeline
from anole.project.plan import Plan, make_plan
from anole.store.shard import ShardContent, read_shard

from ..extract.onnx.models import model_of

ROOT = Path(__file__).parents[2]

FACTORY = """
from torch import nn


def tiny():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )
"""
TUNING = {"preset": "random", "trials": 2, "evaluator": {"number": 1, "repeats": 2}, "n_confirm": 0}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run of Snakemake.

    Attributes:
        jobs: for each rule that ran, the names of its jobs' logs.
    """

    code: int
    output: str
    jobs: dict[str, list[str]]


class Project:
    """A folder with a models.yaml, and operations on it.

    Attributes:
        packages: a folder of additional installed packages.
        variables: environment variables that override this process's.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages: Path | None = None
        self.variables: Mapping[str, str] = {}

    def copy(self, folder: Path) -> Project:
        """Return a copy that keeps the times of all files."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Project(folder)

    def write(self, models: dict[str, object], **changes: object) -> None:
        """Write models.yaml with one build for each model; a section that is None is left out."""
        plain = {
            "models": models,
            "targets": {"cpu": {"kind": "cpu", "threads": 1}},
            "tuning": TUNING,
            "builds": [{"model": name, "target": "cpu"} for name in models],
        }
        sections = {name: section for name, section in {**plain, **changes}.items() if section is not None}
        (self.folder / "models.yaml").write_text(yaml.safe_dump(sections, sort_keys=False))

    def write_chain(self, *channels: int, **changes: object) -> None:
        """Write an ONNX file of convolutions, and models.yaml with only this network."""
        write_onnx(self.folder / "chain.onnx", channels)
        self.write({"chain": {"source": "onnx:chain.onnx"}}, **changes)

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace existing text in a file."""
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Snakemake from another folder, in a separate process group."""
        command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
        command += ["--directory", str(self.folder), "--cores", "2", *arguments]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | self.variables
        if self.packages is not None:
            environment["PYTHONPATH"] = str(self.packages)
        return subprocess.Popen(
            command,
            cwd="/",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def snakemake(self, *arguments: str, limit_s: float = 240.0) -> Outcome:
        """Run Snakemake until it exits."""
        began_ns = time.time_ns()
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=limit_s)
        return Outcome(process.returncode, output, self._jobs_since(began_ns))

    def complete(self, *arguments: str, limit_s: float = 240.0) -> Outcome:
        """Run Snakemake, and assert that it succeeds."""
        outcome = self.snakemake(*arguments, limit_s=limit_s)
        assert outcome.code == 0, outcome.output
        return outcome

    def planned(self, *targets: str) -> list[str]:
        """Return the logs of the jobs that Snakemake would run."""
        outcome = self.snakemake("--dry-run", "--quiet", "host", "--", *targets)
        assert (outcome.code, outcome.jobs) == (0, {}), outcome.output
        return sorted(re.findall(r"^ +log: logs/(\S+)\.log", outcome.output, re.MULTILINE))

    def plan(self) -> Plan:
        return make_plan(Pipeline.load(self.folder / "models.yaml"))

    def query(self, sql: str) -> list[Any]:
        """Return rows of the database."""
        with closing(sqlite3.connect(self.folder / "db/tuning.sqlite")) as database:
            return database.execute(sql).fetchall()

    def anole(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the project's folder."""
        command = [sys.executable, "-m", "anole", *arguments]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'lib'}:{self.packages or ''}"}
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=240
        )

    def shards(self) -> dict[Path, ShardContent]:
        paths = sorted((self.folder / "db/shards").glob("*/*.jsonl"))
        return {path: read_shard(path) for path in paths if path.stat().st_size}

    def tuned_labels(self, outcome: Outcome) -> list[str]:
        labels = {content.task.key: content.task.label for content in self.shards().values()}
        return sorted(labels[name.partition("/")[0]] for name in outcome.jobs.get("tune", []))

    def _jobs_since(self, began_ns: int) -> dict[str, list[str]]:
        jobs: dict[str, list[str]] = {}
        for path in sorted((self.folder / "logs").rglob("*.log")):
            if path.stat().st_mtime_ns >= began_ns:
                rule, *rest = path.relative_to(self.folder / "logs").with_suffix("").parts
                jobs.setdefault(rule, []).append("/".join(rest))
        return jobs


def write_onnx(path: Path, channels: Sequence[int], size: int = 8, operator: str = "Relu") -> None:
    """Write a chain of 3x3 convolutions, each followed by an operator, over an image of 3 channels."""
    rng = np.random.default_rng(0)
    nodes, weights, value, before = "", dict[str, Any](), "x", 3
    for index, after in enumerate(channels):
        weights[f"weight{index}"] = rng.standard_normal((after, before, 3, 3)).astype(np.float32) / 10
        nodes += f"[layer{index}] conv{index} = Conv <pads = [1, 1, 1, 1]> ({value}, weight{index}) "
        value, before = f"value{index}", after
        nodes += f"{value} = {operator} (conv{index}) "
    graph = f"(float[1,3,{size},{size}] x) => (float[1,{before},{size},{size}] {value}) {{{nodes}}}"
    onnx.save(model_of(graph, **weights), path)


@pytest.fixture(scope="session")
def empty_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """Make a project in a new folder."""
    return lambda name: Project(tmp_path_factory.mktemp(name))


def tune(folder: Path, write: Callable[[Project], None]) -> None:
    """Write a project and tune it, storing the outcome in ``outcome.json``."""
    project = Project(folder)
    write(project)
    outcome = project.complete("tuned")
    (folder / "outcome.json").write_text(json.dumps(asdict(outcome)))


def write_two(project: Project) -> None:
    """Write a torch factory and an ONNX file that share their first convolution."""
    (project.folder / "nets.py").write_text(FACTORY)
    write_onnx(project.folder / "chain.onnx", [16, 32])
    torch = {"source": "torch:nets:tiny", "inputs": {"x": [1, 3, 8, 8]}}
    project.write({"tiny": torch, "chain": {"source": "onnx:chain.onnx"}})


@pytest.fixture(scope="session")
def tuned_two(once: Callable[..., Path]) -> tuple[Project, Outcome]:
    folder = once("two", partial(tune, write=write_two))
    return Project(folder), Outcome(**json.loads((folder / "outcome.json").read_text()))


@pytest.fixture
def two(tuned_two: tuple[Project, Outcome], tmp_path: Path) -> Project:
    return tuned_two[0].copy(tmp_path)


@pytest.fixture
def one(once: Callable[..., Path], tmp_path: Path) -> Project:
    """A single convolution, tuned."""
    return Project(once("one", partial(tune, write=lambda project: project.write_chain(16)))).copy(tmp_path)


@pytest.fixture
def empty(tmp_path: Path) -> Project:
    return Project(tmp_path)
