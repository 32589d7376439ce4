"""Anole as a module of another workflow, whose own rules keep their environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, write_onnx

pytestmark = [pytest.mark.workflow, pytest.mark.guard]

OUTER = f"""
shell.prefix("export MARK=outer; ")


rule all:
    input: "report.txt"


module anole:
    snakefile: "{ROOT / "Snakefile"}"


use rule * from anole as anole_*


rule report:
    input: rules.anole_compile.output[0].format(build="chain-cpu-random")
    output: "report.txt"
    resources: gpu=3
    shell: "printf '%s\\\\n' $MARK $PATH ${{{{PYTHONPATH-none}}}} {{resources.gpu}} > {{output}}"


onerror: anole.onerror()
"""


def write_outer(project: Any, text: str = OUTER) -> list[str]:
    """Write the other workflow, and return the arguments that select it."""
    (project.folder / "Snakefile").write_text(text)
    return ["--snakefile", str(project.folder / "Snakefile")]


@pytest.fixture(scope="module")
def used(empty_project: Callable[[str], Any]) -> Any:
    """A finished workflow that uses the results of Anole's rules."""
    project = empty_project("outer")
    project.write_chain(16)
    project.packages = project.folder / "packages"
    outcome = project.complete(*write_outer(project))
    return project, outcome


def test_the_rules_of_the_other_workflow_have_its_environment(used: Any) -> None:
    project, outcome = used
    assert sorted(outcome.jobs) == ["compile", "extract", "tune"]
    lines = (project.folder / "report.txt").read_text().splitlines()
    assert lines == ["outer", os.environ["PATH"], str(project.packages), "3"]


def test_a_second_run_repeats_nothing_and_reports_left_out_builds(used: Any) -> None:
    project = used[0].copy(used[0].folder.with_name("again"))
    outcome = project.snakemake(*write_outer(project))
    assert (outcome.code, outcome.jobs) == (0, {}), outcome.output
    write_onnx(project.folder / "odd.onnx", [16], operator="Odd")
    project.write({"odd": {"source": "onnx:odd.onnx"}})
    outcome = project.snakemake(*write_outer(project), "anole_all", "--keep-going")
    assert outcome.code != 0
    assert "anole: left out: odd-cpu-random: anole_extract failed: " in outcome.output
    assert sorted(outcome.jobs) == ["extract", "merge"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('prefix: "sub"', "the module statement has a prefix, but Anole's files are next to models.yaml"),
        ('config: {"samples": 3}', "models.yaml: samples: is unknown; allowed: models, "),
    ],
)
def test_invalid_module_statements_are_reported(used: Any, tmp_path: Path, more: str, message: str) -> None:
    project = used[0].copy(tmp_path)
    text = OUTER.replace("module anole:\n", f"module anole:\n    {more}\n")
    outcome = project.snakemake(*write_outer(project, text), "--dry-run")
    assert outcome.code == 2
    assert f"anole: {message}" in outcome.output


def test_the_workflow_in_the_docs_works(used: Any, tmp_path: Path) -> None:
    project = used[0].copy(tmp_path)
    project.packages = ROOT / "lib"
    (shown,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/install.md").read_text(), re.DOTALL)
    outer = write_outer(project, shown.replace("resnet18-cpu-anole", "chain-cpu-random"))
    outcome = project.complete(*outer, "--dry-run")
    assert re.findall(r"^(?:local)?rule (\w+):$", outcome.output, re.MULTILINE)[-1] == "all"
    assert {"anole_evaluate", "anole_merge", "report"} <= set(re.findall(r"^(\w+) +\d+$", outcome.output, re.MULTILINE))
