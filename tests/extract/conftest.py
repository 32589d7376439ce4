"""A project folder with tiny networks in it, which is the working directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(Path(__file__).parents[1] / "tiny_networks.py", tmp_path / "tiny.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def project_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory for all examples of a property."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(tmp_path_factory.mktemp("project"))
        yield Path.cwd()
