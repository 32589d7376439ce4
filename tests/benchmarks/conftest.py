"""A fixture that runs a benchmark."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from ..tiny_builds import HOME, run_python

Benchmark = Callable[..., tuple[list[dict[str, str]], str]]


@pytest.fixture(scope="session")
def benchmark(tiny_project: Path) -> Benchmark:
    """Return a runner of benchmarks in the project of a tiny network, which returns their rows and standard error."""

    def run(name: str, *options: str) -> tuple[list[dict[str, str]], str]:
        made = run_python(tiny_project, "-m", f"benchmarks.{name}", *options, more=HOME)
        return list(csv.DictReader(made.stdout.splitlines())), made.stderr

    return run
