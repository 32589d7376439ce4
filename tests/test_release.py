"""The files that describe and build a release: CITATION.cff, the file for the catalog, and the Containerfile."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from .terminal import run_command

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
RECIPE = (ROOT / "Containerfile").read_text()


def test_the_citation_is_complete_and_current() -> None:
    assert {"cff-version", "message", "title", "authors"} <= set(CITATION), "the format requires these"
    assert (CITATION["cff-version"], CITATION["type"]) == ("1.2.0", "software")
    assert CITATION["authors"] == [{"name": "The Anole developers"}]
    assert (CITATION["version"], CITATION["license"]) == (PROJECT["version"], PROJECT["license"])


def test_the_papers_of_the_published_presets_are_cited() -> None:
    for reference in CITATION["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)
        assert all(set(author) == {"family-names", "given-names"} for author in reference["authors"])
    presets = {re.fullmatch(r"the preset (\w+)", reference["notes"])[1] for reference in CITATION["references"]}
    own = {"anole"}
    assert presets == {page.stem for page in (ROOT / "docs/methods").glob("*.md")} - own


def test_the_file_for_the_catalog_is_complete() -> None:
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert set(usage["mandatory-flags"]) == {"desc", "flags"}
    assert set(usage["software-stack-deployment"]) == {"conda", "apptainer", "apptainer+conda", "report"}
    readme = (ROOT / "README.md").read_text().lower()
    assert "snakemake" in readme and "workflow" in readme, "the catalog lists only such repositories"


def copy_files(folder: Path) -> None:
    """Copy the files that the Containerfile copies into the image into a folder."""
    for words in re.findall(r"^COPY (.+)$", RECIPE, re.MULTILINE):
        *sources, to = words.split()
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, folder / to)
            else:
                shutil.copy(ROOT / source, folder / to)


def files_of_the_wheel(project: Path, folder: Path) -> set[str]:
    done = run_command([sys.executable, "-m", "uv", "build", "--wheel", "--out-dir", folder, project])
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="needs uv, which `make env` installs")
def test_the_container_has_all_files_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    copy_files(tmp_path / "image")
    assert files_of_the_wheel(tmp_path / "image", tmp_path / "its") == files_of_the_wheel(ROOT, tmp_path / "whole")


def builder() -> list[str] | None:
    """Return the command that builds an image; None if no builder works here."""
    for name, check in (("docker", "info"), ("podman", "info"), ("buildah", "version")):
        if shutil.which(name) and run_command([name, check]).returncode == 0:
            return [name, "build"]
    return None


@pytest.mark.slow
def test_the_container_is_built() -> None:
    build = builder()
    if build is None:
        pytest.skip("there is no builder of containers that works: docker, podman or buildah")
    (base,) = re.findall(r"^FROM (\S+)$", RECIPE, re.MULTILINE)
    if run_command([build[0], "pull", base]).returncode:
        pytest.skip(f"{build[0]} cannot get {base}")
    done = run_command([*build, "--tag", "anole-test", "--file", "Containerfile", "."], cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
