"""The wheel, installed without a checkout: a project is created and built with nothing else."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import ROOT, Project

LOCK = ROOT / "requirements.lock"

pytestmark = [
    pytest.mark.workflow,
    pytest.mark.guard,
    pytest.mark.skipif(importlib.util.find_spec("uv") is None, reason="needs uv, which `make env` installs"),
]


@dataclass(frozen=True)
class Installation:
    """A virtual environment with Anole from its wheel."""

    folder: Path

    def run(self, *command: str, at: Path) -> str:
        """Run a module of this environment in a folder, and return its output."""
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        together = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run([self.folder / "bin/python", "-m", *command], cwd=at, env=environment, **together)
        assert done.returncode == 0, done.stdout
        return done.stdout


def uv(*arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "uv", *map(str, arguments)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    folder = once("wheel", lambda folder: uv("build", "--wheel", "--out-dir", folder, ROOT))
    (path,) = folder.glob("*.whl")
    return path


def install(folder: Path, wheel: Path, *arguments: object) -> Installation:
    """Install the wheel into a new environment."""
    uv("venv", "--python", sys.executable, folder)
    uv("pip", "install", "--compile-bytecode", "--python", folder / "bin/python", *arguments, wheel)
    return Installation(folder)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Anole from its wheel, with its dependencies from the environment of this test."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    found = install(folder, wheel, "--no-deps")
    # Python does not process .pth files in a folder added by a .pth file, so it does not find the checkout.
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return found


def test_the_wheel_has_the_files_next_to_the_library(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    shared = [ROOT / name for name in ("Snakefile", "environment.yml", "db/README.md", "profiles/default/profile.yaml")]
    shared += [*ROOT.glob("rules/*.smk"), *ROOT.glob("db/queries/*.*"), *ROOT.glob("profiles/kubernetes/*.*")]
    assert {f"anole/share/{path.relative_to(ROOT)}" for path in shared} <= names
    library = {str(path.relative_to(ROOT / "lib")) for path in (ROOT / "lib").rglob("*") if path.suffix != ".pyc"}
    assert {name for name in library if (ROOT / "lib" / name).is_file()} <= names
    own = ("anole/", "anole-", "anole_cuda/", "anole_vta/", "snakemake_logger_plugin_anole/")
    assert not {name for name in names if not name.startswith(own)}


@pytest.mark.slow
def test_a_project_is_created_and_built_without_the_checkout(installed: Installation, tmp_path: Path) -> None:
    assert os.access(installed.folder / "bin/anole", os.X_OK)
    (submit,) = installed.folder.glob("lib/python*/site-packages/anole/share/profiles/kubernetes/submit.py")
    assert os.access(submit, os.X_OK)
    assert "Next: snakemake --cores all" in installed.run("anole", "init", "--demo", at=tmp_path)
    planned = installed.run("snakemake", "--dry-run", at=tmp_path)
    assert "extract" in planned and "resnet18-cpu" in planned
    Project(tmp_path).write_chain(16)
    said = installed.run("snakemake", "--cores", "all", "--printshellcmds", at=tmp_path)
    assert f"{installed.folder}/bin/python -m anole tune " in said
    # Snakemake names itself, and may be installed within the checkout.
    assert str(ROOT) not in said.replace(sys.prefix, "")
    assert (tmp_path / "db/tuning.sqlite").exists() and (tmp_path / "builds/chain-cpu-random/model.so").exists()
    assert "Nothing to be done" in installed.run("snakemake", "--cores", "all", at=tmp_path)


@pytest.mark.slow
def test_the_demo_is_built_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    found = install(tmp_path / "venv", wheel, "--constraints", LOCK)
    found.run("anole", "init", "--demo", "demo", at=tmp_path)
    said = found.run("snakemake", "--cores", "all", at=tmp_path / "demo")
    assert str(ROOT) not in said and len(said.splitlines()) <= 60
    assert re.search(r"^builds/resnet18-cpu-anole +float32 +[0-9.]+ +[0-9.]+ \([0-9.]+x\)", said, re.MULTILINE)
    assert (tmp_path / "demo/builds/resnet18-cpu-anole/model.so").exists()
    assert (tmp_path / "demo/db/tuning.sqlite").exists()
