from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from anole.config.reading import parse_spec
from anole.errors import ProjectError
from anole.project.pipeline import Pipeline
from anole.project.scaffold import make_project
from anole.workflow import HOME

from ..terminal import run_command

PROFILES = {str(path.relative_to(HOME)) for path in HOME.glob("profiles/*/*") if path.is_file()}
FILES = {"models.yaml", "Snakefile", ".gitignore", *PROFILES}


def files_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("demo", "build"), [(False, "squeezenet1_1-cpu-anole"), (True, "resnet18-cpu-anole")])
def test_a_new_project_has_one_build(tmp_path: Path, demo: bool, build: str) -> None:
    made = make_project(tmp_path / "new", demo)
    assert "profiles/default/profile.yaml" in PROFILES
    assert {str(path.relative_to(tmp_path / "new")) for path in made} == FILES == set(files_in(tmp_path / "new"))
    assert list(Pipeline.load(tmp_path / "new/models.yaml").spec.builds) == [build]


def test_commented_entries_of_the_template_are_valid(tmp_path: Path) -> None:
    template, *_ = make_project(tmp_path, demo=False)
    text = template.read_text().replace("  # gpu:", "  gpu:").replace("  # - {", "  - {")
    text = text.replace("  # detector:", "  detector:").replace("  # own:", "  own:")
    (tmp_path / "nets.py").write_text("def make(): ...\n")
    (tmp_path / "detector.onnx").touch()
    spec = parse_spec(yaml.safe_load(text), project=tmp_path)
    assert (list(spec.models), list(spec.targets)) == (["squeezenet1_1", "detector", "own"], ["cpu", "gpu"])
    assert list(spec.builds) == ["squeezenet1_1-cpu-anole", "untuned"]


@pytest.mark.parametrize("name", [".gitignore", "profiles/default/profile.yaml", "profiles"])
def test_existing_files_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    (tmp_path / "models.yaml").symlink_to("nowhere")
    with pytest.raises(ProjectError) as caught:
        make_project(tmp_path, demo=True)
    assert str(caught.value).startswith(f"{tmp_path}/models.yaml, {tmp_path}/{name}: already exists")
    assert files_in(tmp_path) == {name: "mine"}


def test_the_programs_of_a_profile_are_executable(tmp_path: Path) -> None:
    made = make_project(tmp_path, demo=True)
    programs = {str(path.relative_to(tmp_path)) for path in made if os.access(path, os.X_OK)}
    assert programs == {f"profiles/kubernetes/{name}.py" for name in ("submit", "status", "cancel")}


@pytest.mark.guard
def test_the_snakefile_of_a_new_project_passes_lint(tmp_path: Path) -> None:
    make_project(tmp_path, demo=True)
    for arguments in (["snakemake", "--lint"], ["snakefmt", "--check", "Snakefile"]):
        done = run_command([sys.executable, "-m", *arguments], cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_of_a_checkout_is_in_its_root() -> None:
    assert HOME == Path(__file__).parents[2]
