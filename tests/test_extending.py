"""docs/extending.md: every block of the page is a file, and together they are a working package."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from anole.__main__ import main
from anole.config.reading import parse_spec
from anole.search.presets import read_tuner
from anole.search.state import Subject
from anole.store.shard import Shard
from anole.targets import get_kind
from anole.task import Task
from anole.testing.formulas import bowl
from anole.testing.in_memory import tune_in_memory

from .record_project import Project

PAGE = Path(__file__).parents[1] / "docs/extending.md"
BLOCKS = {
    name: text for name, text in re.findall(r"^```\w+\n# (.+?)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
}
MAX_LINES = 45


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package of the page, installed."""
    for name, text in BLOCKS.items():
        (tmp_path / name).write_text(text)
    project = tomllib.loads(BLOCKS["pyproject.toml"])["project"]
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = (
        "\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in points.items())])
        for group, points in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def anole(*arguments):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_all_blocks_are_found():
    assert len(BLOCKS) == PAGE.read_text().count("```") // 2


@pytest.mark.parametrize("name", [name for name in BLOCKS if name.endswith(".py") and not name.startswith("test_")])
def test_a_part_is_short(name):
    assert sum(bool(line.strip()) for line in BLOCKS[name].splitlines()) <= MAX_LINES


@pytest.mark.guard
@pytest.mark.parametrize("name", [name for name in BLOCKS if name.startswith("test_")])
def test_every_part_passes_its_contract_tests(package, name):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", name]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout) and "failed" not in done.stdout


def test_models_yaml_can_name_the_target(package):
    (name, entry), *_ = yaml.safe_load(BLOCKS["targets of models.yaml"]).items()
    models = {"resnet": {"source": "torchvision:resnet18", "inputs": {"x": [1, 3, 224, 224]}}}
    builds = [{"model": "resnet", "target": name}]
    target = parse_spec({"models": models, "targets": {name: entry}, "builds": builds}).targets[name]
    assert (target.kind, dict(target.settings)) == ("plain_cpu", {"threads": 1})


def test_the_target_adds_a_command_and_a_section(package, monkeypatch):
    monkeypatch.chdir(package)
    assert re.search(r"^Targets:\n  panels .*\n  vta ", anole("--help"), re.MULTILINE)
    assert anole("panels", "6") == "[1, 2, 3, 6]\n"
    Project(package).merge()
    anole("report")
    assert "a build for a target of <code>kind: plain_cpu</code>." in Path("report.html").read_text()
    task = Task(Project.DENSE.workload, get_kind("plain_cpu").describe(threads=1), 1)
    with Shard.open(Project(package).shards, Project.run_of(task), task) as shard:
        for number, width in enumerate((8, 2, 8)):
            shard.append_trial(Project.trial_of(number, flop=task.workload.flop, tile_x=[1000 // width, width]))
    Project(package).merge()
    anole("report")
    page = Path("report.html").read_text()
    section = page.partition('<section id="widths">')[2].partition('id="hardware"')[0]
    assert re.findall(r"<td[^>]*>(\d+)</td>", section) == ["2", "1", "8", "2"]


def test_models_yaml_can_name_the_parts_and_they_tune(package):
    settings = read_tuner(yaml.safe_load(BLOCKS["tuning of models.yaml"]))
    parts = [settings.explorer, settings.sampler, settings.surrogate, settings.evaluator]
    assert [part.name for part in parts] == ["climbing", "lottery", "neighbors", "minimum"]
    assert (settings.explorer.n_parents, settings.evaluator.repeats) == (8, 5)
    formula = bowl()
    best = tune_in_memory(Subject(formula.space, formula.flop, "task"), settings, formula.measure, 96, seed=0)
    random = tune_in_memory(
        Subject(formula.space, formula.flop, "task"), read_tuner({"preset": "random"}), formula.measure, 96, seed=0
    )
    assert best.measurement.latency_s < random.measurement.latency_s
