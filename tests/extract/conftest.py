"""A project folder with tiny networks in it, which is the working directory, and networks that tests write there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anole.config.entries import ModelSpec

Write = Callable[..., ModelSpec]
"""A function that writes the source of a torch network ``Net`` with an input x, and returns the model's entry."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(Path(__file__).parents[1] / "tiny_networks.py", tmp_path / "tiny.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(project: Path) -> Write:
    def written(source: str, *shape: int) -> ModelSpec:
        header = "import torch\nfrom torch import fft, nn\nfrom torch.nn import functional as F\n"
        (project / "written.py").write_text(header + source)
        return ModelSpec("net", "torch:written:Net", {"x": shape})

    return written


@pytest.fixture(scope="module")
def project_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory shared by all examples of a property."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(tmp_path_factory.mktemp("project"))
        yield Path.cwd()
