"""What tests of benchmarks share: how a benchmark is run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ..tiny_builds import run_python


@pytest.fixture(scope="session")
def benchmark(tiny_project: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs one of the benchmarks in the project of a tiny network."""
    return lambda name, *options: run_python(tiny_project, "-m", f"benchmarks.{name}", *options)
