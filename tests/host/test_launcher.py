"""The shell command that starts Anole, and the PYTHONPATH of its caller."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

from anole.host import launcher
from anole.host.launcher import LIBRARY, callers_packages

STARTED = (
    "import os; os.chdir('/'); from anole.host.launcher import *; print(callers_packages(), launcher(), sep='\\n')"
)


def start_in(folder: Path, path: str) -> list[str]:
    """Return the output of a Python process that started in a folder with a ``PYTHONPATH``, then changed to ``/``."""
    environment = {**os.environ, "PYTHONPATH": path, "PWD": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", STARTED], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_relative_packages_are_resolved_where_python_started(tmp_path: Path) -> None:
    packages, _ = start_in(tmp_path, f"own:{LIBRARY}::../other")
    assert packages == str([f"{tmp_path}/own", str(LIBRARY), str(tmp_path.parent / "other")])


def test_the_command_starts_this_library_in_any_folder(tmp_path: Path) -> None:
    _, command = start_in(tmp_path, f"{LIBRARY}:o'wn")
    show = "import anole, sys; print(anole.__file__, sys.executable, *sys.path, sep='\\n')"
    shown = command.replace("-m anole", f'-c "{show}"')
    done = subprocess.run(shown, shell=True, cwd="/", env={}, capture_output=True, text=True, check=True)
    library, interpreter, *path = done.stdout.splitlines()
    assert (library, interpreter) == (str(LIBRARY / "anole/__init__.py"), sys.executable)
    assert f"{tmp_path}/o'wn" in path


def test_an_installed_library_is_not_added_to_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    assert callers_packages() == []
    assert f"PYTHONPATH={quote(str(LIBRARY))} " in launcher.launcher()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(LIBRARY))
    assert "PYTHONPATH" not in launcher.launcher()
