"""Build tiny networks for the CPU, and run Python in separate processes.

TVM sets its number of threads when it starts, so everything that runs a build needs a separate process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import copy
from typing import Any

from anole.config.entries import ModelSpec

HOME = Path(__file__).parents[1]

_N, _TOKENS = {"n": "1..3"}, {"tokens": "3..40"}

RANGED = {
    name: ModelSpec.from_json(name, {"source": f"torch:tiny:{name}", "inputs": inputs})
    for name, inputs in {
        "norm_first": {"x": [_N, _TOKENS, 32]},
        "norm_last": {"x": [4, _TOKENS, 32]},
        "masked": {"x": [_N, _TOKENS, 32], "mask": [_N, _TOKENS]},
        "pooled": {"x": {"shape": [_N, _TOKENS], "dtype": "int64"}},
        "windowed": {"x": [_N, _TOKENS, 32]},
        "reduced": {"x": [_N, 4, _TOKENS]},
        "listened": {"x": [_N, _TOKENS, 24]},
    }.items()
}
"""Tiny networks with a variable batch and length."""

BUILD = """
import sys
from pathlib import Path
from anole.config.entries import ModelSpec
from tests.tiny_builds import compile_untuned

compile_untuned(ModelSpec("net", "torch:tiny:residual", {"x": tuple(map(int, sys.argv[1:]))}), Path("net"))
"""


def compile_untuned(model: ModelSpec, folder: Path, description: Mapping[str, Any] | None = None) -> None:
    """Compile a network of the working directory with default configs, by default for one CPU thread."""
    from anole.compiler.build import BuildSettings, compile_build
    from anole.extract.stage import extract_tasks
    from anole.targets import get_target
    from anole.targets.cpu.settings import describe_cpu

    target = get_target(description or describe_cpu(threads=1))
    kind = target.description["kind"]
    manifest, _ = extract_tasks(model, kind, target)
    compile_build(model, manifest, BuildSettings(folder.name, "autotvm", 0, False, 0), {}, folder)


def run_python(folder: Path, *arguments: str, more: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with one thread, the library and optionally more sources; it must succeed."""
    path = os.pathsep.join(map(str, filter(None, (HOME / "lib", HOME, more, folder))))
    environment = {**os.environ, "PYTHONPATH": path, "TVM_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run


def build_tiny(folder: Path, *shape: int) -> None:
    """Write ``tiny.py`` into a folder, and an untuned build of its residual network for one thread as ``net``."""
    copy(HOME / "tests/tiny_networks.py", folder / "tiny.py")
    run_python(folder, "-c", BUILD, *map(str, shape))
