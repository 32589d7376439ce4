"""What tests of benchmarks share: a build of a tiny network, and how a benchmark is run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copy

import pytest

HOME = Path(__file__).parents[2]

COMPILE = """
from pathlib import Path
from anole.compile.build import BuildSettings, compile_build
from anole.extract.tasks import extract_tasks
from anole.targets.cpu.settings import describe_cpu
from anole.spec.entries import ModelSpec
from anole.targets import get_target

target = get_target(describe_cpu(threads=1))
model = ModelSpec("net", "torch:tiny:residual", {"x": (2, 3, 32, 32)})
manifest, _ = extract_tasks(model, "cpu", target.description, target.template_version)
compile_build(model, manifest, BuildSettings("net", "autotvm", 0, False, 0), {}, Path("net"))
"""


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(HOME / "lib"), str(folder)]
    # A folder of its own for the lock on the device, which a tuning run may hold for minutes.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(folder)}
    run = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run


@pytest.fixture(scope="session")
def tiny_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in whose folder ``net`` a residual network is built for the processor, untuned, at batch 2."""
    folder = tmp_path_factory.mktemp("tiny")
    copy(HOME / "tests/tiny_networks.py", folder / "tiny.py")
    run_python(folder, "-c", COMPILE)
    return folder


@pytest.fixture(scope="session")
def benchmark(tiny_project: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs one of the benchmarks in that project."""
    return lambda name, *options: run_python(tiny_project, str(HOME / f"benchmarks/{name}.py"), *options)
