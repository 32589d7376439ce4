"""A project folder with tiny networks in it, which is the working directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(Path(__file__).parents[1] / "tiny_networks.py", tmp_path / "tiny.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path
