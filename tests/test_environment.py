"""The script that builds the environment: its choice of Python, its errors without one, and when it rebuilds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .terminal import run_command

ROOT = Path(__file__).parents[1]
COMMANDS = ("awk", "cat", "cksum", "cp", "dirname", "head", "mkdir", "rm", "sh", "tail")
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"

pytestmark = pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv, which `make env` installs")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The only folder on PATH, with the programs that the script calls, but no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in COMMANDS:
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in a folder with a space in its name, and one small package in requirements.lock."""
    folder = tmp_path / "a checkout"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/environment", folder / ".ci")
    (pin,) = re.findall(r"^iniconfig==(?:.+\n)+?(?=^\S)", (ROOT / "requirements.lock").read_text(), re.M)
    (folder / "requirements.lock").write_text(pin)
    for name in ("pyproject.toml", "README.md", "LICENSE", "Snakefile", "environment.yml"):
        shutil.copy(ROOT / name, folder)
    for name in ("rules", "profiles", "db", "lib"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def build(checkout: Path, machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "VENV", "VIRTUAL_ENV")}
    uv = {"UV_PYTHON_DOWNLOADS": "never", "UV_PYTHON_INSTALL_DIR": str(machine)}
    return run_command([checkout / ".ci/environment"], env={**kept, "PATH": str(machine), **uv, **environment})


def add_uv(machine: Path) -> None:
    (machine / "uv").symlink_to(shutil.which("uv") or "uv")


def environments(checkout: Path) -> list[str]:
    return sorted(path.name for path in checkout.glob(".venv*"))


@pytest.mark.parametrize(
    ("has_uv", "needed"), [(False, "uv, or a Python with pip"), (True, "one of Python 3.11 ")], ids=["uv", "Python"]
)
def test_a_missing_program_is_reported(has_uv: bool, needed: str, checkout: Path, machine: Path) -> None:
    if has_uv:
        add_uv(machine)
    done = build(checkout, machine)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Anole needs {needed}") and done.stderr.count("\n") == 1
    assert not environments(checkout)


@pytest.mark.parametrize("python", ["3.10", "2", "/nowhere/python3.11", "sh"])
def test_an_unsupported_python_is_rejected_and_nothing_changes(python: str, checkout: Path, machine: Path) -> None:
    add_uv(machine)
    (checkout / ".venv").mkdir()
    (checkout / ".venv/mine").touch()
    done = build(checkout, machine, PYTHON=python)
    assert (done.returncode, environments(checkout)) == (1, [".venv"])
    assert done.stderr.startswith("Anole needs one of Python") and (checkout / ".venv/mine").exists()


def test_an_unknown_build_of_torch_is_rejected(checkout: Path, machine: Path) -> None:
    done = build(checkout, machine, TORCH="gpu")
    assert (done.returncode, environments(checkout)) == (1, [])
    assert done.stderr == "Anole needs TORCH=cuda, which is the default, or TORCH=cpu; found TORCH=gpu\n"


@pytest.mark.guard
def test_without_gpus_torch_is_from_its_own_index_and_nvidias_libraries_are_left_out(
    checkout: Path, machine: Path
) -> None:
    add_uv(machine)
    (machine / f"python{THIS}").symlink_to(sys.executable)
    pins = re.findall(r"^(?:torch|nvidia-nvtx)==(?:.+\n)+?(?=^\S)", (ROOT / "requirements.lock").read_text(), re.M)
    with (checkout / "requirements.lock").open("a") as lock:
        lock.writelines(pins)
    done = build(checkout, machine, PYTHON=THIS, TORCH="cpu")
    if "download.pytorch.org" in done.stderr:
        pytest.skip("torch's index cannot be reached")
    packages = {path.name.split("-")[0] for path in (checkout / ".venv").glob("lib/*/site-packages/*.dist-info")}
    assert (done.stderr, packages) == ("", {"iniconfig", "torch", "anole"})


@pytest.mark.guard
def test_an_environment_is_built_once_and_rebuilt_after_moving(checkout: Path, machine: Path) -> None:
    add_uv(machine)
    (machine / f"python{THIS}").symlink_to(sys.executable)
    assert build(checkout, machine).stderr == ""
    program = checkout / ".venv/bin/anole"
    made = program.stat().st_mtime_ns
    assert build(checkout, machine, PYTHON=THIS).stderr == build(checkout, machine, PYTHON=sys.executable).stderr == ""
    assert program.stat().st_mtime_ns == made
    moved = checkout.rename(checkout.parent / "another")
    assert build(moved, machine).stderr == ""
    assert str(moved) in (moved / ".venv/bin/anole").read_text()
    assert environments(moved) == [".venv"]
